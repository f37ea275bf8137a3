"""The calls `parley.federation.list`, `parley.federation.path`, `parley.federation.check` and
`parley.statements`, which a server answers to members and accounts.

They report what this server knows; the contents of cards are their signers' claims.
"""

from collections.abc import Iterator
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.errors import CallRefused
from parley._node.node import Node
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.rate_limit import Rate
from parley._node.remote.remote import Remote
from parley._node.remote.requests import Call
from parley._node.server.federation import Federation, LinkState
from parley._node.trust.admission import PerAddressLimiter
from parley._node.tunnels.home_server import MOST_ASKED, STATEMENTS_CALL

# Calls of `parley.statements` by one node.
ASKED: Final = Rate(8, 8.0)


def offer_federation_calls(node: Node, federation: Federation) -> None:
    """Register the calls; ParleyError if there are such handlers already."""

    def allow(peer: Remote, name: str) -> bool:
        return peer.node_id is not None and federation.knows(peer.node_id)

    @node.on_call("parley.federation.list", allow=allow)
    async def listed(call: Call) -> dict[str, Value]:
        return {
            "node_id": str(node.node_id),
            "links": [_link(link) for link in federation.links],
            "servers": [
                {
                    "node_id": str(server.node_id),
                    "links": {str(one): carries for one, carries in server.links.items()},
                    "exports": list(server.exports),
                    "addresses": list(server.addresses),
                    "made": server.made.isoformat(),
                    "expires": server.expires.isoformat(),
                    "path": _texts(server.path),
                }
                for server in federation.servers
            ],
        }

    @node.on_call("parley.federation.path", allow=allow)
    async def path(call: Call) -> dict[str, Value]:
        found = federation.path(*_ids(call.data, 2))
        return {"path": None if found is None else _texts(found)}

    @node.on_call("parley.federation.check", allow=allow)
    async def check(call: Call) -> list[Value]:
        return [
            {"kind": one.kind, "servers": _texts(one.servers), "text": one.text}
            for one in federation.check()
        ]

    limiter = PerAddressLimiter(ASKED)

    @node.on_call(STATEMENTS_CALL, allow=allow)
    async def statements(call: Call) -> dict[str, Value]:
        limiter.require(str(call.peer.node_id), node.backend.now())
        of = call.data.get("of") if isinstance(call.data, dict) else None
        found = node.statements.table.statements_from(_ids(of, MOST_ASKED))
        return {"statements": [one.encoded for one in found]}


def _link(link: LinkState) -> dict[str, Value]:
    return {
        "node_id": str(link.node_id),
        "up": link.peer is not None,
        "dialled": link.dialled,
        "kept": link.kept,
        "error": None if link.peer is not None or link.error is None else str(link.error),
    }


def _ids(data: Value, most: int) -> Iterator[NodeId]:
    """Yield 1 to `most` node ids, given as texts in a list."""
    if not isinstance(data, list) or not 1 <= len(data) <= most:
        what = f"{len(data)} of them" if isinstance(data, list) else type(data).__name__
        reason = f"a list of 1 to {most} node ids, as texts, not {what}"
        raise CallRefused(ResultCode.MALFORMED, reason)
    for text in data:
        try:
            yield NodeId.parse(text if isinstance(text, str) else "")
        except IdentityError as error:
            raise CallRefused(ResultCode.MALFORMED, f"not a node id: {ascii(text)[:80]}") from error


def _texts(path: tuple[NodeId, ...]) -> list[Value]:
    return [str(one) for one in path]
