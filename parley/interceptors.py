"""Interceptors for incoming and outgoing requests, request IDs and trace context."""

from parley._node.handlers.interceptors import Intercepted, Interceptor, Kind, Proceed, Way
from parley._node.handlers.trace_context import TraceContext, current_request_id, current_trace

__all__ = [
    "Intercepted",
    "Interceptor",
    "Kind",
    "Proceed",
    "TraceContext",
    "Way",
    "current_request_id",
    "current_trace",
]
