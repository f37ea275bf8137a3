"""`DialPolicy`: decides about the Dials that a node receives.

Servers have one implementation (node/server/tunnel_dialer.py). The one for nodes with accounts is
here.
"""

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
from parley._node.tunnels.tunnel_transport import TunnelTransport


@dataclass(frozen=True, slots=True)
class IncomingDial:
    """A Dial from the authenticated node `neighbour`.

    It has either a `path` of 2 to 8 ids or a target `to` of one or two ids. `trace` is 16 bytes,
    `deadline` a time of the loop's clock. `stream` carried the Dial and becomes a hop of the
    tunnel.
    """

    neighbour: NodeId
    path: tuple[NodeId, ...] | None
    to: tuple[NodeId, ...] | None
    trace: bytes
    deadline: float
    stream: TunnelStream | None = None


class DialPolicy(Protocol):
    """Decides about each Dial."""

    def decide(self, dial: IncomingDial) -> AbstractAsyncContextManager[TunnelTransport | None]:
        """Return a context that is active while the tunnel is open. It yields the open onward
        tunnel, which the caller splices and closes, or None if the tunnel ends at this node.

        Raises:
            TunnelRefusedError: on entering, if the Dial is refused. Without a hop, the answer
                carries this node's.
        """


class AccountDialPolicy:
    """The policy of a node with accounts: accepts tunnels to `node_id` from its home servers.

    `homes` returns the current ids of these; `now` is the loop's clock.
    """

    def __init__(
        self, node_id: NodeId, homes: Callable[[], Container[NodeId]], now: Callable[[], float]
    ) -> None:
        self._node_id = node_id
        self._homes = homes
        self._now = now
        self._tunnels: dict[NodeId, int] = {}
        self._rates: dict[NodeId, TokenBucket] = {}

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[None]:
        """Accept a tunnel that ends here, or refuse it."""
        neighbour, path = dial.neighbour, dial.path
        if neighbour not in self._homes():
            raise TunnelRefusedError(ResultCode.NOT_AUTHORISED)
        if path is None or path[-1] != self._node_id or len(set(path)) != len(path):
            raise TunnelRefusedError(ResultCode.MALFORMED)
        if path[-2] != neighbour:
            raise TunnelRefusedError(ResultCode.NOT_AUTHORISED)
        rate = self._rates.setdefault(neighbour, TokenBucket(DIALS_OF_LINK))
        count = self._tunnels.get(neighbour, 0)
        if not rate.take(self._now()) or count >= TUNNELS_OF_LINK:
            raise TunnelRefusedError(ResultCode.OVERLOADED)
        self._tunnels[neighbour] = count + 1
        try:
            yield None
        finally:
            self._tunnels[neighbour] -= 1
