"""Federation of server nodes: links, cards, paths."""

from node.server.federation import FederatedServer, Federation, LinkState
from node.server.findings import FederationFinding

__all__ = ["FederatedServer", "Federation", "FederationFinding", "LinkState"]
