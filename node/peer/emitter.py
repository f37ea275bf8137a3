"""Emits named events to a native peer: what `Emission` needs of one.

One rule: it only joins the peer and its core.
"""

from typing import TYPE_CHECKING

from node.errors import PeerClosedError
from node.messaging.emits import OutgoingEmit
from node.messaging.payloads import Payload
from node.transport.backend import Backend

if TYPE_CHECKING:
    from node.peer.peer import Peer


class NativeEmitter:
    """Events to one peer, on its connection's main stream."""

    __slots__ = ("_peer", "backend", "marks_end")

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self.backend: Backend = peer.backend
        self.marks_end = True

    @property
    def has_room(self) -> bool:
        """Whether nobody need wait."""
        return self._peer.driver.has_room

    async def room(self, timeout: float | None) -> float | None:
        """Wait while too much waits to be written; CallTimeout if it takes too long."""
        return await self._peer.room(timeout)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event to which no reply is wanted."""
        self._peer.calls.named.emit(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies."""
        now = self.backend.now()
        self._peer.calls.named.ask(emit, name, namespace, payload, now, timeout)

    def leave(self, emit: OutgoingEmit) -> None:
        """Nobody waits for more of its replies."""
        self._peer.asking.leave(emit)

    def give_up(self, emit: OutgoingEmit) -> None:
        """Nobody wants its replies: Cancel."""
        self._peer.asking.give_up(emit)

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be sent any more."""
        return self._peer.closed_error()
