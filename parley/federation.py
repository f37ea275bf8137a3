"""Federation of server nodes: links, cards, paths."""

from node.server.federation import FederatedServer, Federation
from node.server.link import ServerLink

__all__ = ["FederatedServer", "Federation", "ServerLink"]
