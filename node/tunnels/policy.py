"""What a node decides about a Dial: `Switch`, of which a server has one and an account another."""

from collections.abc import AsyncIterator, Callable, Container
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from parley._crypto.identity import NodeId
from parley._node.errors import TunnelRefusedError
from parley._node.federation.limits import DIALS_OF_LINK, TUNNELS_OF_LINK
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.rate_limit import TokenBucket
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.tunnels.tunnel_transport import TunnelOutlet


@dataclass(frozen=True, slots=True)
class IncomingDial:
    """A Dial that came from `neighbour`, who is proven. It has either `path`, of 2 to 8 ids, or is
    for `to`, one or two ids; `trace` is its 16 bytes, `deadline` a time of the loop's clock.
    `stream` is the stream of the Dial, which becomes a hop of the tunnel."""

    neighbour: NodeId
    path: tuple[NodeId, ...] | None
    to: tuple[NodeId, ...] | None
    trace: bytes
    deadline: float
    stream: TunnelStream | None = None


class Switch(Protocol):
    """Decides about each Dial; what it counts, it counts for as long as the tunnel is open."""

    def decide(self, dial: IncomingDial) -> AbstractAsyncContextManager[TunnelOutlet | None]:
        """Enter for the tunnel onward, which is open, to be joined and closed by whoever entered;
        None for a tunnel that ends here, with a path whose last id is this node's. It is left when
        the tunnel is over, and cancelled when nobody waits for it any more.

        Raises:
            TunnelRefusedError: on entering: there will be none. Without a hop it is answered as
                this node's.
        """


class AccountSwitch:
    """Leads nowhere: what is not for `node_id`, or comes from none of `homes` (node ids, as they
    are now), is refused. `now` is the loop's clock."""

    def __init__(
        self, node_id: NodeId, homes: Callable[[], Container[NodeId]], now: Callable[[], float]
    ) -> None:
        self._node_id = node_id
        self._homes = homes
        self._now = now
        self._tunnels: dict[NodeId, int] = {}
        self._dials: dict[NodeId, TokenBucket] = {}

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[None]:
        """Enter for a tunnel that ends here."""
        neighbour, path = dial.neighbour, dial.path
        if neighbour not in self._homes():
            raise TunnelRefusedError(ResultCode.NOT_AUTHORISED)
        if path is None or path[-1] != self._node_id or len(set(path)) != len(path):
            raise TunnelRefusedError(ResultCode.MALFORMED)
        if path[-2] != neighbour:
            raise TunnelRefusedError(ResultCode.NOT_AUTHORISED)
        allowance = self._dials.setdefault(neighbour, TokenBucket(DIALS_OF_LINK))
        count = self._tunnels.get(neighbour, 0)
        if not allowance.take(self._now()) or count >= TUNNELS_OF_LINK:
            raise TunnelRefusedError(ResultCode.OVERLOADED)
        self._tunnels[neighbour] = count + 1
        try:
            yield None
        finally:
            self._tunnels[neighbour] -= 1
