"""Federation of server nodes: links, cards, paths."""

from node.server.federation import FederatedServer, Federation, LinkState
from node.server.findings import Finding

__all__ = ["FederatedServer", "Federation", "Finding", "LinkState"]
