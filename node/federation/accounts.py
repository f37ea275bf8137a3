"""The accounts of a home server, without I/O: which nodes have one, and which are logged in
(docs/protocol.md section 20).
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final, Generic, TypeVar

from parley._crypto.identity import NodeId
from parley._node.protocol.codes import ResultCode

S = TypeVar("S")

# The maximum number of nodes logged in at one home.
MOST_LOGGED_IN: Final = 16_384


class Accounts(Generic[S]):
    """The permitted accounts, and the session `S` of each account that is logged in.

    `ids` are permitted; None permits every node. Nodes in `servers`, which may change, have no
    account, because they may be linked; nor have those in `ended` (section 22).
    """

    __slots__ = ("_ended", "_ids", "_logged_in", "_servers")

    def __init__(
        self, ids: Iterable[NodeId] | None = (), servers: Container[NodeId] = frozenset()
    ) -> None:
        self._ids = None if ids is None else frozenset(ids)
        self._servers = servers
        self._ended: Container[NodeId] = frozenset()
        self._logged_in: dict[NodeId, S] = {}

    def __len__(self) -> int:
        return len(self._logged_in)

    def __iter__(self) -> Iterator[NodeId]:
        """Iterate over the nodes that are logged in."""
        return (one for one in self._logged_in if self.may(one))

    def __repr__(self) -> str:
        may = "anybody" if self._ids is None else len(self._ids)
        return f"<Accounts of {may}, {len(self)} logged in>"

    def may(self, node_id: NodeId) -> bool:
        """Return whether a node has an account, or may create one by logging in."""
        return (
            (self._ids is None or node_id in self._ids)
            and node_id not in self._servers
            and node_id not in self._ended
        )

    def session(self, node_id: NodeId) -> S | None:
        """Return the session over which a node is logged in, or None."""
        return self._logged_in.get(node_id) if self.may(node_id) else None

    def login(self, node_id: NodeId, session: S) -> ResultCode:
        """Log a node in; a new login replaces an earlier one.

        Returns 0, or 20 if the node has no account, or 19 if too many nodes are logged in.
        """
        if not self.may(node_id):
            return ResultCode.NOT_AUTHORISED
        if node_id not in self._logged_in and len(self) >= MOST_LOGGED_IN:
            return ResultCode.OVERLOADED
        self._logged_in[node_id] = session
        return ResultCode.ACCEPTED

    def logout(self, node_id: NodeId, session: S) -> ResultCode:
        """Log a node out, unless it is logged in over another session.

        Returns 0, or 20 if the node has no account.
        """
        if self._logged_in.get(node_id) is session:
            del self._logged_in[node_id]
        return ResultCode.ACCEPTED if self.may(node_id) else ResultCode.NOT_AUTHORISED

    def change(
        self, ids: Iterable[NodeId] | None, ended: Container[NodeId] = frozenset()
    ) -> list[S]:
        """Replace the permitted IDs and the ended ones, and return the sessions of nodes that lost
        their account.
        """
        self._ids = None if ids is None else frozenset(ids)
        self._ended = ended
        lost = [one for one in self._logged_in if not self.may(one)]
        return [self._logged_in.pop(one) for one in lost]
