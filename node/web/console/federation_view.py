"""What the console shows of a federation: its servers, their links, and the ways of tunnels."""

from itertools import islice
from typing import Any, Final

from parley._node.node import Node
from parley._node.server.federation import Federation, LinkState
from parley._node.web.console.peers_view import Names
from parley._node.web.console.text import ids, shown

MOST_SERVERS: Final = 1_024  # as many as a federation has
MOST_WAYS: Final = 200
MOST_WORDS: Final = 32


def federation_view(
    node: Node, federation: Federation | None, names: Names
) -> dict[str, Any] | None:
    """The graph as the cards tell of it, ways of tunnels that begin, end or lead through here, and
    what is wrong; None without a federation. Only what this server's own links are is proven."""
    if federation is None:
        return None
    return {
        "self": str(node.node_id),
        "name": shown(names.get(node.node_id, "")),
        "links": [_link(link) for link in federation.links],
        "servers": [
            {
                "id": str(server.node_id),
                "name": shown(names.get(server.node_id, "")),
                "links": {str(one): carries for one, carries in server.links.items()},
                "exports": [shown(one) for one in server.exports[:MOST_WORDS]],
                "addresses": [shown(one) for one in server.addresses[:MOST_WORDS]],
                "expires": server.expires.timestamp(),
                "way": ids(server.path),
            }
            for server in islice(federation.servers, MOST_SERVERS)
        ],
        "tunnels": federation.tunnels,
        "ways": [ids(way) for way in islice(federation.carried, MOST_WAYS)],
        "wrong": [
            {"kind": one.kind, "servers": ids(one.servers), "text": shown(one.text)}
            for one in federation.check()
        ],
    }


def _link(link: LinkState) -> dict[str, Any]:
    up = link.peer is not None
    return {
        "id": str(link.node_id),
        "up": up,
        "kept": link.kept,
        "dialled": link.dialled,
        "error": None if up or link.error is None else shown(link.error),
    }
