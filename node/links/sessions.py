"""`Sessions`: what those who speak over a link know of it, whatever session there is."""

from typing import Protocol

from parley._node.errors import PeerClosedError
from parley._node.peer.peer import Peer
from parley._node.transport.backend import Backend


class Sessions(Protocol):
    """The sessions of a link, one after another."""

    @property
    def is_over(self) -> bool:
        """Whether the link has ended."""

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before its `async with`."""

    async def connected(self, timeout: float | None) -> tuple[Peer, float | None]:
        """The peer, once it can be asked at once, and what is left of `timeout`.

        Raises:
            CallTimeout: no connection in time; its cause is why. PeerClosedError: the link has
                ended. LocalProtocolError: 4,096 wait for the connection.
        """

    async def next_session(self) -> Peer:
        """The peer, once there is a session; PeerClosedError if there will be none."""

    async def over(self) -> PeerClosedError:
        """Wait until the link has ended; returns what to raise then."""

    def over_error(self) -> PeerClosedError:
        """What to raise once the link has ended."""

    def joined(self, subscription: object) -> None:
        """It goes on over sessions, until `parted`; LocalProtocolError beyond 1,024."""

    def parted(self, subscription: object) -> None:
        """It is over."""
