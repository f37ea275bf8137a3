"""OpenTelemetry spans of incoming and outgoing requests; requires the `opentelemetry-api` package.

The header `traceparent` of calls and notes carries the trace (W3C Trace Context), so that the spans
of several nodes form one trace. Named events, subscriptions and streams have no headers and begin
their own traces.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_tracer_provider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from parley._node.errors import CallRefused
from parley._node.handlers.interceptors import Intercepted, Kind, Proceed, Way
from parley._node.protocol.codes import ResultCode, result_name

_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Intercepting(Protocol):
    def intercept(self, *kinds: Kind, way: Way = ...) -> Callable[[Any], Any]:
        """Register an interceptor."""


def trace(node: Intercepting, provider: TracerProvider | None = None) -> None:
    """Create a span for each incoming call, event, subscription and stream, and each outgoing call.

    Spans are named `call TOPIC` and so on; the attribute `parley.code` is the name of the result
    code. Published notes carry the current span. By default, `provider` is the program's tracer
    provider.
    """
    tracer = (provider or get_tracer_provider()).get_tracer("parley")
    asked, asks = _Asked(tracer), _Asks(tracer)
    node.intercept("call", "event", "subscribe", "stream")(asked.around)
    node.intercept("call", way="out")(asks.around)
    node.intercept("note", way="out")(_inject)


class _Asked:
    """Creates spans for incoming requests."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def around(self, one: Intercepted, proceed: Proceed) -> Any:
        """Run a request in a span whose parent is in its headers."""
        carrier = _texts(one)
        parent = _PROPAGATOR.extract(carrier)
        with self._tracer.start_as_current_span(
            f"{one.kind} {one.name}",
            parent,
            SpanKind.SERVER,
            {"rpc.system": "parley", "parley.kind": one.kind},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            return await _record_outcome(span, one, proceed)


class _Asks:
    """Creates spans for outgoing calls."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def around(self, one: Intercepted, proceed: Proceed) -> Any:
        """Make a call in a span and add it to the headers."""
        with self._tracer.start_as_current_span(
            f"{one.kind} {one.name}",
            None,
            SpanKind.CLIENT,
            {"rpc.system": "parley", "parley.kind": one.kind},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            _PROPAGATOR.inject(one.headers)
            return await _record_outcome(span, one, proceed)


async def _inject(one: Intercepted, proceed: Proceed) -> Any:
    """Add the current span to the headers of a published note."""
    _PROPAGATOR.inject(one.headers)
    return await proceed(one)


async def _record_outcome(span: Span, one: Intercepted, proceed: Proceed) -> Any:
    """Run the request and record its outcome in the span."""
    try:
        answer = await proceed(one)
    except CallRefused as refused:
        span.set_attribute("parley.code", result_name(refused.code))
        if one.way == "out" or refused.code == ResultCode.HANDLER_FAILED:
            span.set_status(Status(StatusCode.ERROR))
        raise
    except Exception as error:
        # The message of the exception may be confidential, so only its type is recorded.
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR))
        raise
    span.set_attribute("parley.code", result_name(0))
    return answer


def _texts(one: Intercepted) -> dict[str, str]:
    """Return the headers that the propagator reads, if they are text."""
    wanted = {name: one.headers.get(name) for name in _PROPAGATOR.fields}
    return {name: value for name, value in wanted.items() if isinstance(value, str)}
