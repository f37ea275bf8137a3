"""Spans of what a node is asked and what it asks, through OpenTelemetry's API; it needs the package
`opentelemetry-api`.

The trace goes along in the header `traceparent` of calls and notes (W3C Trace Context), so that
the spans of several nodes make one trace. Named events, subscriptions and streams have no headers:
they begin a trace of their own.
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
    """A node."""

    def intercept(self, *kinds: Kind, way: Way = ...) -> Callable[[Any], Any]:
        """Register an interceptor."""


def trace(node: Intercepting, provider: TracerProvider | None = None) -> None:
    """From now on make a span of each call, event, subscription and stream that comes, and of each
    call that is made. It is named `call TOPIC` and so on; its attribute `parley.code` names the
    code of its answer. Notes go with the span that publishes them. `provider` is the program's own
    by default."""
    tracer = (provider or get_tracer_provider()).get_tracer("parley")
    asked, asks = _Asked(tracer), _Asks(tracer)
    node.intercept("call", "event", "subscribe", "stream")(asked.around)
    node.intercept("call", way="out")(asks.around)
    node.intercept("note", way="out")(_inject)


class _Asked:
    """Spans of what peers ask."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def around(self, one: Intercepted, proceed: Proceed) -> Any:
        """Run a request in its span, whose parent its headers name."""
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
    """Spans of what this node asks."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def around(self, one: Intercepted, proceed: Proceed) -> Any:
        """Make a call in its span, which goes along."""
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
    """A note that is published goes with the span that publishes it."""
    _PROPAGATOR.inject(one.headers)
    return await proceed(one)


async def _record_outcome(span: Span, one: Intercepted, proceed: Proceed) -> Any:
    """Go on; and say in the span how it ended."""
    try:
        answer = await proceed(one)
    except CallRefused as refused:
        span.set_attribute("parley.code", result_name(refused.code))
        if one.way == "out" or refused.code == ResultCode.HANDLER_FAILED:
            span.set_status(Status(StatusCode.ERROR))
        raise
    except Exception as error:
        # The text may hold what is nobody's business; the type says where to look.
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR))
        raise
    span.set_attribute("parley.code", result_name(0))
    return answer


def _texts(one: Intercepted) -> dict[str, str]:
    """The headers that the propagator reads, as far as they are text."""
    wanted = {name: one.headers.get(name) for name in _PROPAGATOR.fields}
    return {name: value for name, value in wanted.items() if isinstance(value, str)}
