"""`Homes`: the servers at which a node has accounts. Through them others may dial it, and ask for
what it exports (sections 19 and 20).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from parley._crypto.identity import NodeId
from parley._node.federation.exports import Exports
from parley._node.handlers.registry import Handlers
from parley._node.links.link import Dialler
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import TUNNEL_LABEL
from parley._node.remote.redialling import Dial
from parley._node.tunnels.account_switch import AccountSwitch
from parley._node.tunnels.service import TunnelService
from parley._node.tunnels.switch import Switch


class HomedNode(Dialler, Protocol):
    """What a home asks of its node, beside what a link does."""

    handlers: Handlers

    @property
    def node_id(self) -> NodeId:
        """Its id."""

    async def connect_by(
        self, dials: Sequence[Dial], node_id: NodeId, *, name: str, timeout: float = ...
    ) -> Peer:
        """Do the handshake over what one of `dials` leads to; raises as `Node.connect`."""

    def serve_tunnels(self, switch: Switch) -> TunnelService:
        """Let peers dial tunnels; ParleyError if they may already."""


class Homes:
    """The homes of one node. While there are any, it takes the tunnels that come through them."""

    def __init__(self, node: HomedNode) -> None:
        self._node = node
        self._servers: dict[Exports, Callable[[], NodeId | None]] = {}

    def begin(self, exports: Exports, server: Callable[[], NodeId | None]) -> None:
        """There is one more, until `end`: `server` gives its id, if that is known.

        Raises:
            ParleyError: the node serves tunnels of its own: it is a server itself.
        """
        node = self._node
        if not self._servers:
            node.serve_tunnels(AccountSwitch(node.node_id, self._ids, node.backend.now))
        self._servers[exports] = server
        node.handlers.exports.add(exports)

    def end(self, exports: Exports) -> None:
        """It is left, and what it exported is exported no more; a second time changes nothing."""
        if self._servers.pop(exports, None) is None:
            return
        handlers = self._node.handlers
        handlers.exports.discard(exports)
        if not self._servers:
            del handlers.reserved[TUNNEL_LABEL]

    def _ids(self) -> set[NodeId]:
        found = (server() for server in self._servers.values())
        return {one for one in found if one is not None}
