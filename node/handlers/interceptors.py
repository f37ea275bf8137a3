"""Interceptors: application code that runs around incoming and outgoing requests.

An interceptor gets a request and `proceed`, which runs the remaining interceptors and the request
itself. The interceptor registered first is the outermost.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args

from parley._lbm.codec import Encodable
from parley._node.errors import ConfigError
from parley._node.logs import RateLimitedLogger
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import is_async

logger = logging.getLogger("parley.peer")

Kind = Literal["call", "event", "subscribe", "note", "stream"]
Way = Literal["in", "out"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class PassedHeaders(dict[str, Any]):
    """Headers that have passed the interceptors and must not pass them again."""


class Intercepted:
    """A request as interceptors see it, incoming or outgoing.

    Attributes: kind: `call`, `event`, `subscribe`, `note` or `stream`. way: `in` for requests of a
    peer and notes that it publishes; otherwise `out`. peer: the remote side; None for a note that
    this node publishes. name: the name of the topic or event, or the label of the stream. data: the
    request's data, which can be replaced; None for events and streams. headers: the headers of a
    call or note; those of outgoing requests can be changed. timeout: the timeout of an outgoing
    request in seconds; None for no limit. request: the handler's argument: a Call, NamedEvent,
    SubscribeRequest or Stream; None for outgoing requests.

    Example:

        @node.intercept("call", way="out")
        async def log_call(one, proceed):
            print(one.kind, one.name)
            return await proceed(one)

        assert await peer.call("greet", "Ann") == "hello Ann"
    """

    __slots__ = ("data", "headers", "kind", "name", "peer", "request", "timeout", "way")

    def __init__(
        self,
        chain: "Chain",
        peer: Any,
        name: str,
        data: Any = None,
        headers: Mapping[str, Encodable] | None = None,
        *,
        timeout: float | None = None,
        request: Any = None,
    ) -> None:
        self.kind: Kind = chain.kind
        self.way: Way = chain.way
        self.peer = peer
        self.name = name
        self.data = data
        self.headers: dict[str, Any] = dict(headers or {})
        self.timeout = timeout
        self.request = request

    def __repr__(self) -> str:
        return f"<Intercepted {self.kind} {self.way}, {self.name!r}>"


# Runs the rest of the chain and returns the request's answer, or None.
Proceed = Callable[[Intercepted], Awaitable[Any]]
Interceptor = Callable[[Intercepted, Proceed], Awaitable[Any]]
I = TypeVar("I", bound=Callable[[Intercepted, Any], Any])  # noqa: E741 - as its name begins


class Chain(list[Callable[[Intercepted, Any], Any]]):
    """The interceptors of one kind and way, the outermost first; usually empty."""

    __slots__ = ("kind", "way")

    def __init__(self, kind: Kind, way: Way) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.way: Way = way

    def run(self, one: Intercepted, innermost: Callable[[Intercepted], Any]) -> Any:
        """Run the chain from the outermost interceptor and return its result."""
        proceed = innermost
        for interceptor in reversed(self):
            proceed = _step(interceptor, proceed)
        return proceed(one)


class Interceptors:
    """The chains of a node."""

    __slots__ = (
        "_chains",
        "_failures",
        "call_in",
        "call_out",
        "event_in",
        "event_out",
        "note_in",
        "note_out",
        "stream_in",
        "stream_out",
        "subscribe_in",
        "subscribe_out",
    )

    def __init__(self) -> None:
        self._failures = RateLimitedLogger()
        self.call_in = Chain("call", "in")
        self.call_out = Chain("call", "out")
        self.event_in = Chain("event", "in")
        self.event_out = Chain("event", "out")
        self.note_in = Chain("note", "in")
        self.note_out = Chain("note", "out")
        self.stream_in = Chain("stream", "in")
        self.stream_out = Chain("stream", "out")
        self.subscribe_in = Chain("subscribe", "in")
        self.subscribe_out = Chain("subscribe", "out")
        self._chains = {
            (chain.kind, chain.way): chain
            for chain in (
                *(self.call_in, self.call_out, self.event_in, self.event_out),
                *(self.note_in, self.note_out, self.stream_in, self.stream_out),
                *(self.subscribe_in, self.subscribe_out),
            )
        }

    def add(self, interceptor: I, kinds: tuple[Kind, ...], way: Way) -> I:
        """Add an interceptor inside the existing ones, for later requests.

        Raises:
            ConfigError: the kind or way is unknown, no kind is given, or a coroutine function is
                given for outgoing streams, which are opened without waiting.
        """
        chains = [self._chains[kind, way] for kind in kinds if (kind, way) in self._chains]
        if not chains or len(chains) < len(kinds):
            raise ConfigError(
                f"cannot intercept {kinds!r}, {way!r}: expected {', '.join(KINDS)}, 'in' or 'out'"
            )
        require_callable(interceptor, "an interceptor", "intercepted", "proceed")
        if way == "out" and "stream" in kinds and (len(chains) > 1 or is_async(interceptor)):
            raise ConfigError(
                f"cannot use {interceptor!r} to intercept outgoing streams: open_stream does not "
                "wait, so its interceptors are plain functions, registered for 'stream' only"
            )
        for chain in chains:
            chain.append(interceptor)
        return interceptor

    def log_failure(self, now: float, kind: Kind, name: str) -> None:
        """Log the exception of an interceptor, rate-limited because peers can cause it."""
        text = "an interceptor of %s %r failed"
        self._failures.log(
            logger,
            logging.ERROR,
            now,
            text,
            kind,
            name,
            exc_info=True,
            extra={"event": "interceptor.failed", "kind": kind, "topic": name},
        )


def _step(
    interceptor: Callable[[Intercepted, Any], Any], proceed: Callable[[Intercepted], Any]
) -> Callable[[Intercepted], Any]:
    return lambda one: interceptor(one, proceed)
