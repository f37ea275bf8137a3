"""`LinkEmitter`: what sends one event of a link, over the session that there is when it is sent.

Waiting for room waits for the connection as well. The replies are of that session, and end with it.
"""

from node.errors import PeerClosedError
from node.links.sessions import Sessions
from node.messaging.emits import OutgoingEmit
from node.messaging.payloads import Payload
from node.peer.events import NativeEmitter
from node.transport.backend import Backend


class LinkEmitter:
    """Sends one event: an `Emitter`."""

    __slots__ = ("_link", "_session", "marks_end")

    def __init__(self, link: Sessions) -> None:
        self._link = link
        self._session: NativeEmitter  # from `room` on
        self.marks_end = True

    @property
    def backend(self) -> Backend:
        """The loop of the link; ParleyError before its `async with`."""
        return self._link.backend

    @property
    def has_room(self) -> bool:
        """Never: `room` is always waited for."""
        return False

    async def room(self, timeout: float | None) -> float | None:
        """Wait for a session with room; raises as `Link.call`."""
        peer, left = await self._link.connected(timeout)
        self._session = peer.endpoint.emitter
        return left

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event to which no reply is wanted."""
        self._session.send(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies."""
        self._session.ask(emit, name, namespace, payload, timeout)

    def leave(self, emit: OutgoingEmit) -> None:
        """Wait for no more of its replies."""
        self._session.leave(emit)

    def give_up(self, emit: OutgoingEmit) -> None:
        """Want none of its replies: Cancel."""
        self._session.give_up(emit)

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be sent any more."""
        return self._session.closed_error()
