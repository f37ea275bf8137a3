"""`WaitingEmitter`: what sends one event over the connection that there is when it is sent.

Waiting for room waits for the connection as well. The replies are of that connection, and end with
it.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from parley._node.errors import PeerClosedError
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.messaging.payloads import Payload
from parley._node.remote.emission import Emitter
from parley._node.transport.backend import Backend

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class Waited(Protocol[C_co]):
    """What connects, and connects again: a link, or a client."""

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before its `async with`."""

    async def connected(self, timeout: float | None) -> tuple[C_co, float | None]:
        """The other side, once it can be asked at once, and what is left of `timeout`."""


class WaitingEmitter(Generic[C]):
    """Sends one event: an `Emitter`. `emitter_of` is what sends over one connection."""

    __slots__ = ("_emitter", "_emitter_of", "_waited", "marks_end")

    def __init__(
        self, waited: Waited[C], emitter_of: Callable[[C], Emitter], *, marks_end: bool = True
    ) -> None:
        self._waited = waited
        self._emitter_of = emitter_of
        self._emitter: Emitter  # from `room` on
        self.marks_end = marks_end

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before the `async with` of what connects."""
        return self._waited.backend

    @property
    def has_room(self) -> bool:
        """Never: `room` is always waited for."""
        return False

    async def room(self, timeout: float | None) -> float | None:
        """Wait for a connection with room; raises as `Reachable.connected`."""
        reached, left = await self._waited.connected(timeout)
        self._emitter = emitter = self._emitter_of(reached)
        return left if emitter.has_room else await emitter.room(left)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event to which no reply is wanted."""
        self._emitter.send(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies."""
        self._emitter.ask(emit, name, namespace, payload, timeout)

    def leave(self, emit: OutgoingEmit) -> None:
        """Wait for no more of its replies."""
        self._emitter.leave(emit)

    def give_up(self, emit: OutgoingEmit) -> None:
        """Want none of its replies: its handler is to end, where that can be said."""
        self._emitter.give_up(emit)

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be sent any more."""
        return self._emitter.closed_error()
