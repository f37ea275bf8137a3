"""Interceptors: an application's code around what a node is asked, and what it asks.

Each is given a request and `proceed`, which runs the rest: further interceptors, then the request
itself. The first that was registered is the outermost. Where none is registered, nothing is made.
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
    """Headers of what has been through its interceptors, and is not to go there again."""


class Intercepted:
    """A request as its interceptors see it, on its way in or out.

    Attributes:
        kind: `call`, `event`, `subscribe`, `note` or `stream`.
        way: `in` for what a peer asks of this node, or publishes to it; else `out`.
        peer: the other side; None for a note that this node publishes.
        name: of the topic or event, or the label of the stream.
        data: what goes with it, which may be replaced; None of events and streams.
        headers: of a call or note. On their way out they may be changed.
        timeout: seconds, of what is asked; None for no limit, and on the way in.
        request: what the handler is given: a Call, NamedEvent, SubscribeRequest or Stream; None
            on the way out.
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


# Runs the rest, and returns its answer: data, or None.
Proceed = Callable[[Intercepted], Awaitable[Any]]
Interceptor = Callable[[Intercepted, Proceed], Awaitable[Any]]
I = TypeVar("I", bound=Callable[[Intercepted, Any], Any])  # noqa: E741 - as its name begins


class Chain(list[Callable[[Intercepted, Any], Any]]):
    """The interceptors of one kind and way, the outermost first. It is asked whether it is empty
    where each request passes."""

    __slots__ = ("kind", "way")

    def __init__(self, kind: Kind, way: Way) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.way: Way = way

    def run(self, one: Intercepted, innermost: Callable[[Intercepted], Any]) -> Any:
        """Begin with the outermost; returns what it does."""
        proceed = innermost
        for interceptor in reversed(self):
            proceed = _step(interceptor, proceed)
        return proceed(one)


class Interceptors:
    """All chains of a node."""

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
        """Have an interceptor run inside of those there are, for requests from now on.

        Raises:
            ConfigError: there is no such kind and way, or none is named; or it is a coroutine
                function for streams that are opened, which does not wait.
        """
        chains = [self._chains[kind, way] for kind in kinds if (kind, way) in self._chains]
        if not chains or len(chains) < len(kinds):
            raise ConfigError(
                f"intercepted are {', '.join(KINDS)}, 'in' or 'out', not {kinds!r}, {way!r}"
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
        """Log the exception that an interceptor raised, unless there were many: a peer that sends
        what makes it fail shall not fill the log."""
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
