"""`AccountSwitch`: what a node that has accounts lets in: tunnels to itself, from its homes."""

from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager

from parley._crypto.identity import NodeId
from parley._node.errors import TunnelRefusedError
from parley._node.federation.limits import DIALS_OF_LINK, TUNNELS_OF_LINK
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.rate_limit import TokenBucket
from parley._node.tunnels.switch import IncomingDial


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
