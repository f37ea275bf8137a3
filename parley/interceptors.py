"""Interceptors, around what a node is asked and what it asks; request ids and traces."""

from node.handlers.interceptors import Intercepted, Interceptor, Kind, Proceed, Way
from node.handlers.propagation import current_request_id, current_trace
from node.handlers.trace_context import TraceContext

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
