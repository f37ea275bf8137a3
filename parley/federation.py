"""Federation of server nodes: links, cards, paths."""

from node.server.federation import FederatedServer, Federation, LinkState
from node.server.findings import FederationFinding
from node.server.link import DialServer

__all__ = [
    "DialServer",
    "FederatedServer",
    "Federation",
    "FederationFinding",
    "LinkState",
]
