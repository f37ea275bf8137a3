"""Request ids and trace contexts, from what a node is asked to what it asks because of that.

They travel in headers of calls and notes, `request-id` and `traceparent`, and inside of a program
in context variables, so that code between the two need not hand them on.
"""

import re
from contextvars import ContextVar
from typing import Any, Final

from parley._crypto.randomness import random_bytes
from parley._node.handlers.interceptors import Intercepted, Interceptors, Proceed
from parley._node.handlers.trace_context import TraceContext

REQUEST_ID: Final = "request-id"
TRACEPARENT: Final = "traceparent"

# What a peer may call its request: it goes into logs.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}")

_request_id: ContextVar[str] = ContextVar("parley_request_id", default="")
_trace: ContextVar[TraceContext | None] = ContextVar("parley_trace", default=None)


def current_request_id() -> str:
    """The id of the request whose handler this is; empty outside of one."""
    return _request_id.get()


def current_trace() -> TraceContext | None:
    """The span of the request whose handler this is; None outside of one."""
    return _trace.get()


def propagate(interceptors: Interceptors, *, notes: bool = False) -> None:
    """Have a node take ids and traces from what comes, or make new ones, and put them on what
    goes out; `notes` too."""
    interceptors.add(_received, ("call", "event", "stream", "subscribe"), "in")
    interceptors.add(_sent, ("call",), "out")
    if notes:
        interceptors.add(_note_received, ("note",), "in")
        interceptors.add(_sent, ("note",), "out")


async def _received(one: Intercepted, proceed: Proceed) -> Any:
    before = _request_id.get(), _trace.get()
    _enter(one)
    try:
        return await proceed(one)
    finally:
        _request_id.set(before[0])
        _trace.set(before[1])


async def _note_received(one: Intercepted, proceed: Proceed) -> Any:
    # It is its reader's until the next one: that is who goes on when this returns.
    _enter(one)
    return await proceed(one)


async def _sent(one: Intercepted, proceed: Proceed) -> Any:
    one.headers.setdefault(REQUEST_ID, _request_id.get() or _new_request_id())
    if TRACEPARENT not in one.headers:
        trace = _trace.get()
        one.headers[TRACEPARENT] = str(TraceContext.new() if trace is None else trace.child())
    return await proceed(one)


def _enter(one: Intercepted) -> None:
    request_id = one.headers.get(REQUEST_ID)
    if not isinstance(request_id, str) or not _REQUEST_ID.fullmatch(request_id):
        request_id = _new_request_id()
    parent = TraceContext.parse(one.headers.get(TRACEPARENT))
    _request_id.set(request_id)
    _trace.set(TraceContext.new() if parent is None else parent.child())


def _new_request_id() -> str:
    return random_bytes(8).hex()
