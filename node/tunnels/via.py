"""The connections that via:// addresses lead over: one for each server, dialled with the first
tunnel over it and closed after the last.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from parley._crypto.randomness import random_bytes
from parley._node.peer.peer import Peer
from parley._node.protocol.event_types import TRACE_SIZE
from parley._node.remote.redialling import DIAL_TIMEOUT, Dial
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.tunnels.dialling import dial_tunnel, tunnel_dial
from parley._node.tunnels.outlet import TunnelOutlet
from parley._node.tunnels.shared_session import SharedSession

# Seconds of a Dial; whoever waits less cancels it.
TIMEOUT: Final = 2 * DIAL_TIMEOUT


class Outers:
    """The outer connections of one node. `connect` dials a server, `loop` gives the node's loop."""

    def __init__(
        self, connect: Callable[[str], Awaitable[Peer]], loop: Callable[[], Backend]
    ) -> None:
        self._connect = connect
        self._loop = loop
        self._outers: dict[Address, SharedSession] = {}

    def __len__(self) -> int:
        return len(self._outers)

    def dial(self, address: Address) -> Dial:
        """How a via address is dialled; TunnelRefusedError or UnreachableError if it cannot be."""
        return tunnel_dial(lambda: self.open(address))

    async def open(self, address: Address) -> TunnelOutlet:
        """Open a tunnel to the node of a via address.

        Raises:
            TunnelRefusedError: no tunnel leads there. UnreachableError, HandshakeError: nor does a
                connection to its server.
        """
        assert address.node_id is not None  # else there is no dial
        place = address.of_server
        outer = self._outers.setdefault(place, SharedSession())
        outer.users += 1
        try:
            peer = await outer.opened(lambda: self._connect(str(place)))
            homes = () if address.home is None else (address.home,)
            tunnel = await dial_tunnel(
                peer,
                to=(*homes, address.node_id),
                trace=random_bytes(TRACE_SIZE),
                timeout=TIMEOUT,
            )
        except BaseException:
            self._left(place, outer)
            raise
        tunnel.on_closed = lambda: self._left(place, outer)
        return tunnel

    def _left(self, place: Address, outer: SharedSession) -> None:
        """One uses it no more; the last one closes it."""
        outer.users -= 1
        if outer.users:
            return
        del self._outers[place]
        if outer.peer is not None and outer.peer.is_open:
            self._loop().spawn(outer.peer.close)
