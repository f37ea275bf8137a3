"""The slots of a home server: which node waits at which slot (section 21).

All numbers are limited: the slots in total, per node and per address, and the requests per address,
because many requests would reveal who is waiting.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.apps.pairing.code import LAST_SLOT, SECONDS, CodeGoneError
from parley._node.errors import CallRefused, PeerClosedError
from parley._node.node import Node
from parley._node.peer.link import Link
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.rate_limit import Rate
from parley._node.remote.remote import Remote
from parley._node.remote.requests import Call
from parley._node.trust.admission import PerAddressLimiter, address_key

MOST_SLOTS: Final = 1_024
OF_A_NODE: Final = 4
OF_AN_ADDRESS: Final = 16
ASKED: Final = Rate(8, 8.0)  # claims and lookups per address

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class _Claim(Generic[S]):
    node_id: NodeId
    session: S
    address: str
    until: float


class SlotTable(Generic[S]):
    """The slots and the nodes that claim them. The slots of a session are free when `is_over`
    returns True for it.
    """

    def __init__(self, is_over: Callable[[S], bool]) -> None:
        self._is_over = is_over
        self.claims: dict[int, _Claim[S]] = {}
        self._limiter = PerAddressLimiter(ASKED)

    def __len__(self) -> int:
        return len(self.claims)

    def claim(
        self, node_id: NodeId, session: S, name: str, now: float, wanted: int | None = None
    ) -> int:
        """Claim the slot `wanted`, or the lowest free slot, and return it.

        `name` is the remote address of the node.

        Raises:
            CallRefused: code 20 if another node has `wanted`, 19 if a limit is exceeded.
        """
        self._limiter.require(name, now)
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
        """Free a slot, if the node has it."""
        claim = self.claims.get(slot)
        if claim is not None and claim.node_id == node_id:
            del self.claims[slot]

    def find(self, slot: int, name: str, now: float) -> NodeId | None:
        """Return the node that waits at a slot, or None.

        Raises:
            CallRefused: code 19, the rate limit of the address is exceeded.
        """
        self._limiter.require(name, now)
        self._drop_old(now)
        claim = self.claims.get(slot)
        return None if claim is None else claim.node_id

    def _drop_old(self, now: float) -> None:
        for slot, claim in list(self.claims.items()):
            if now >= claim.until or self._is_over(claim.session):
                del self.claims[slot]


CLAIM: Final = "parley.codes.claim"
FREE: Final = "parley.codes.free"
FIND: Final = "parley.codes.find"


def offer_code_calls(node: Node) -> SlotTable[Remote]:
    """Register the calls for slots on a home server; raise ParleyError if they are registered."""
    table = SlotTable[Remote](lambda session: not session.is_open)

    def allow(peer: Remote, name: str) -> bool:
        """Return whether the peer is logged in, over this session."""
        accounts = node.handlers.accounts
        if accounts is None or peer.node_id is None:
            return False
        session = accounts.session(peer.node_id)
        return session is not None and session.remote is peer

    @node.on_call(CLAIM, allow=allow)
    async def claim(call: Call) -> Value:
        wanted = None if call.data is None else _slot(call.data)
        peer = call.peer
        slot = table.claim(_id_of(peer), peer, peer.name, node.backend.now(), wanted)
        return {"slot": slot, "seconds": int(SECONDS)}

    @node.on_call(FREE, allow=allow)
    async def free(call: Call) -> None:
        table.free(_id_of(call.peer), _slot(call.data))

    @node.on_call(FIND, allow=allow)
    async def find(call: Call) -> Value:
        found = table.find(_slot(call.data), call.peer.name, node.backend.now())
        return {"node_id": None if found is None else str(found)}

    return table


async def claim_slot(home: Link | Peer, wanted: int | None = None) -> int:
    """Claim a slot at a home server, optionally the slot `wanted`.

    Raises:
        CallRefused: code 20 if another node has it, 19 if a limit is exceeded.
        CodeGoneError: the answer is invalid. Also the errors of `Peer.call`.
    """
    answer = await home.call(CLAIM, None if wanted is None else {"slot": wanted})
    try:
        slot = _slot(answer)
    except CallRefused as error:
        raise CodeGoneError(
            f"cannot claim a slot: the home's answer contains none: {ascii(answer)[:80]}"
        ) from error
    if wanted not in (None, slot):
        raise CodeGoneError(f"the home gave slot {slot} in place of slot {wanted}")
    return slot


async def keep_slot(home: Link, session: Peer, slot: int) -> None:
    """Keep a slot, first claimed over `session`, by reclaiming it in each later session.

    It runs until cancelled.

    Raises:
        CallRefused: another node has claimed the slot. Also the errors of `claim_slot` and
            `Link.ready`.
    """
    while True:
        await session.closed()
        session = await home.ready()
        with suppress(PeerClosedError):  # retried in the next session
            await claim_slot(session, slot)


async def free_slot(home: Link | Peer, slot: int) -> None:
    """Free a slot; raise the errors of `Peer.call`."""
    await home.call(FREE, {"slot": slot})


async def find_slot(home: Link | Peer, slot: int) -> NodeId:
    """Return the node that waits at a slot, according to the home; the exchange verifies it.

    Raises:
        CodeGoneError: no node waits there, or the answer is invalid.
        CallRefused: code 19, the rate limit is exceeded. Also the errors of `Peer.call`.
    """
    answer = await home.call(FIND, {"slot": slot})
    text = answer.get("node_id") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise CodeGoneError(f"no sender waits at slot {slot} of this home; check the code")
    try:
        return NodeId.parse(text)
    except IdentityError as error:
        raise CodeGoneError(f"the home's answer for slot {slot} has no node id: {error}") from error


def _slot(data: Value) -> int:
    slot = data.get("slot") if isinstance(data, dict) else None
    if isinstance(slot, bool) or not isinstance(slot, int) or not 1 <= slot <= LAST_SLOT:
        raise CallRefused(ResultCode.MALFORMED, f"a slot is 1 to {LAST_SLOT}")
    return slot


def _id_of(peer: Remote) -> NodeId:
    assert peer.node_id is not None  # checked by `allow`
    return peer.node_id
