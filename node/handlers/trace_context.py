"""Trace contexts (W3C, header `traceparent`) and request ids, and how they propagate.

They travel in headers of calls and notes, and in context variables within a program.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self

from parley._crypto.randomness import random_bytes
from parley._node.handlers.interceptors import Intercepted, Interceptors, Proceed

SAMPLED: Final = 0x01
# version, trace-id, parent-id, trace-flags, and additions of later versions.
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# The most characters that are parsed, including additions of later versions.
_LONGEST: Final = 256


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace (W3C Trace Context).

    `trace_id` has 32 hexadecimal digits and `span_id` 16. The lowest bit of `flags` is set if the
    trace is recorded.
    """

    trace_id: str
    span_id: str
    flags: int = SAMPLED

    @classmethod
    def new(cls) -> Self:
        """Return the first span of a new trace."""
        return cls(random_bytes(16).hex(), random_bytes(8).hex())

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Parse a `traceparent` header; None if it is invalid (section 3.2 of the
        recommendation).
        """
        if not isinstance(text, str) or len(text) > _LONGEST:
            return None
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        version, trace_id, span_id, flags, more = match.groups()
        if version == "ff" or (version == "00" and more is not None):
            return None
        if not int(trace_id, 16) or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, int(flags, 16) & SAMPLED)

    @property
    def sampled(self) -> bool:
        """Whether the trace is recorded."""
        return bool(self.flags & SAMPLED)

    def child(self) -> "TraceContext":
        """Return a child span in the same trace."""
        return TraceContext(self.trace_id, random_bytes(8).hex(), self.flags)

    def __str__(self) -> str:
        """Return the header's text, of version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


REQUEST_ID: Final = "request-id"
TRACEPARENT: Final = "traceparent"

# The request IDs that peers may choose, because they are logged.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}")

_request_id: ContextVar[str] = ContextVar("parley_request_id", default="")
_trace: ContextVar[TraceContext | None] = ContextVar("parley_trace", default=None)


def current_request_id() -> str:
    """Return the ID of the request that the current handler processes; empty outside of
    handlers.
    """
    return _request_id.get()


def current_trace() -> TraceContext | None:
    """Return the span of the request that the current handler processes; None outside of
    handlers.
    """
    return _trace.get()


def propagate(interceptors: Interceptors, *, notes: bool = False) -> None:
    """Propagate request IDs and traces from incoming to outgoing requests, creating missing ones.

    With `notes`, notes are included.
    """
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
    # The context stays set until the reader gets its next note, because it processes this note
    # after the interceptor has returned.
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
