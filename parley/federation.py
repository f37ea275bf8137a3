"""Federation of servers: links between servers, cards, and paths to nodes."""

from parley._node.server.federation import FederatedServer, Federation, LinkState
from parley._node.server.findings import FederationFinding
from parley._node.server.links import DialServer

__all__ = [
    "DialServer",
    "FederatedServer",
    "Federation",
    "FederationFinding",
    "LinkState",
]
