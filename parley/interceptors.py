"""Interceptors, around what a node is asked and what it asks; request ids and traces."""

from node.handlers.interceptors import Intercepted, Interceptor, Proceed
from node.handlers.propagation import current_request_id, current_trace
from node.handlers.trace_context import TraceContext

__all__ = [
    "Intercepted",
    "Interceptor",
    "Proceed",
    "TraceContext",
    "current_request_id",
    "current_trace",
]
