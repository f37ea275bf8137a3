"""The accounts of a home, without I/O: who may have one, and who is logged in over which session
(docs/protocol.md section 20).
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final, Generic, TypeVar

from parley._crypto.identity import NodeId
from parley._node.protocol.codes import ResultCode

S = TypeVar("S")

# Nodes that are logged in at one home.
MOST_LOGGED_IN: Final = 16_384


class Accounts(Generic[S]):
    """Who may have an account, and the sessions `S` of those who are logged in, one each.

    `ids` may; None: every node. Those in `servers` may not: a server that is linked has no account,
    and is asked for each time, so that it may change.
    """

    __slots__ = ("_ids", "_logged_in", "_servers")

    def __init__(
        self, ids: Iterable[NodeId] | None = (), servers: Container[NodeId] = frozenset()
    ) -> None:
        self._ids = None if ids is None else frozenset(ids)
        self._servers = servers
        self._logged_in: dict[NodeId, S] = {}

    def __len__(self) -> int:
        return len(self._logged_in)

    def __iter__(self) -> Iterator[NodeId]:
        """Those who are logged in."""
        return (one for one in self._logged_in if self.may(one))

    def __repr__(self) -> str:
        may = "anybody" if self._ids is None else len(self._ids)
        return f"<Accounts of {may}, {len(self)} logged in>"

    def may(self, node_id: NodeId) -> bool:
        """Whether a node has an account, or may have one by logging in."""
        return (self._ids is None or node_id in self._ids) and node_id not in self._servers

    def session(self, node_id: NodeId) -> S | None:
        """The session over which a node is logged in, and reached; None: it is not."""
        return self._logged_in.get(node_id) if self.may(node_id) else None

    def login(self, node_id: NodeId, session: S) -> ResultCode:
        """A node logs in; of its logins the newest counts. The code that answers it: 0, 20 without
        an account, 19 if too many are logged in."""
        if not self.may(node_id):
            return ResultCode.NOT_AUTHORISED
        if node_id not in self._logged_in and len(self) >= MOST_LOGGED_IN:
            return ResultCode.OVERLOADED
        self._logged_in[node_id] = session
        return ResultCode.ACCEPTED

    def logout(self, node_id: NodeId, session: S) -> ResultCode:
        """A node logs out, or its session is over; nothing, if another of its sessions is the one
        that counts. The code that answers it: 0, or 20 without an account."""
        if self._logged_in.get(node_id) is session:
            del self._logged_in[node_id]
        return ResultCode.ACCEPTED if self.may(node_id) else ResultCode.NOT_AUTHORISED

    def change(self, ids: Iterable[NodeId] | None) -> list[S]:
        """These may have one from now on. Returns the sessions of those who were logged in, and may
        not any more."""
        self._ids = None if ids is None else frozenset(ids)
        lost = [one for one in self._logged_in if not self.may(one)]
        return [self._logged_in.pop(one) for one in lost]
