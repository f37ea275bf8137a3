"""The slots of a home: which node waits at which (section 21). Pure: the time comes in.

Everything has a limit: slots in all, of one node and of one address, and how often an address may
ask, since whoever asks for many learns who waits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from parley._crypto.identity import NodeId
from parley._node.apps.codes.code import LAST_SLOT, SECONDS
from parley._node.errors import CallRefused
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.rate_limit import Rate
from parley._node.trust.admission import address_key
from parley._node.trust.rations import Rations

MOST_SLOTS: Final = 1_024
OF_A_NODE: Final = 4
OF_AN_ADDRESS: Final = 16
ASKED: Final = Rate(8, 8.0)  # claims and finds of one address

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class _Claim(Generic[S]):
    node_id: NodeId
    session: S
    address: str
    until: float


class SlotTable(Generic[S]):
    """`is_over` says of a session whether it has ended: its slots are free then."""

    def __init__(self, is_over: Callable[[S], bool]) -> None:
        self._is_over = is_over
        self.claims: dict[int, _Claim[S]] = {}
        self._rations = Rations(ASKED)

    def __len__(self) -> int:
        return len(self.claims)

    def claim(
        self, node_id: NodeId, session: S, name: str, now: float, wanted: int | None = None
    ) -> int:
        """Give a slot to a node: `wanted`, or the lowest that is free. `name` is the address that
        it comes from.

        Raises:
            CallRefused: 20 if `wanted` is another's, 19 beyond a limit.
        """
        self._rations.require(name, now)
        self._drop_old(now)
        address, _ = address_key(name)
        held = None if wanted is None else self.claims.get(wanted)
        if held is not None and held.node_id != node_id:
            raise CallRefused(ResultCode.NOT_AUTHORISED, f"slot {wanted} belongs to another node")
        others = [one for slot, one in self.claims.items() if slot != wanted]
        of_node = sum(one.node_id == node_id for one in others)
        of_address = sum(one.address == address for one in others)
        if len(others) >= MOST_SLOTS or of_node >= OF_A_NODE or of_address >= OF_AN_ADDRESS:
            raise CallRefused(
                ResultCode.OVERLOADED,
                f"too many slots: a node can have {OF_A_NODE}, an address {OF_AN_ADDRESS}",
            )
        slot = wanted or next(n for n in range(1, LAST_SLOT + 1) if n not in self.claims)
        self.claims[slot] = _Claim(node_id, session, address, now + SECONDS)
        return slot

    def free(self, node_id: NodeId, slot: int) -> None:
        """The node does not wait there any more; nothing, if it did not."""
        claim = self.claims.get(slot)
        if claim is not None and claim.node_id == node_id:
            del self.claims[slot]

    def find(self, slot: int, name: str, now: float) -> NodeId | None:
        """The node that waits at a slot; CallRefused with 19 for an address that asks too often."""
        self._rations.require(name, now)
        self._drop_old(now)
        claim = self.claims.get(slot)
        return None if claim is None else claim.node_id

    def _drop_old(self, now: float) -> None:
        for slot, claim in list(self.claims.items()):
            if now >= claim.until or self._is_over(claim.session):
                del self.claims[slot]
