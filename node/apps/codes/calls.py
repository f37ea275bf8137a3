"""The calls of a home about slots (section 21): answered there, and made by its accounts."""

from contextlib import suppress
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.apps.codes.code import LAST_SLOT, SECONDS
from parley._node.apps.codes.errors import CodeGoneError
from parley._node.apps.codes.slots import SlotTable
from parley._node.errors import CallRefused, PeerClosedError
from parley._node.links.link import Link
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import ResultCode
from parley._node.remote.remote import Remote
from parley._node.remote.requests import Call

CLAIM: Final = "parley.codes.claim"
FREE: Final = "parley.codes.free"
FIND: Final = "parley.codes.find"


def offer_code_calls(node: Node) -> SlotTable[Remote]:
    """Answer them, on a node that is a home; ParleyError if there are such handlers already."""
    table = SlotTable[Remote](lambda session: not session.is_open)

    def allow(peer: Remote, name: str) -> bool:
        """Whether the peer is logged in, over this very session."""
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
    """Have a slot at a home, the `wanted` one if any.

    Raises:
        CallRefused: 20 if it is another's, 19 beyond a limit. CodeGoneError: the answer makes no
            sense. And as `Peer.call`.
    """
    answer = await home.call(CLAIM, None if wanted is None else {"slot": wanted})
    try:
        slot = _slot(answer)
    except CallRefused as error:
        raise CodeGoneError(
            f"the home's answer has no slot of a code: {ascii(answer)[:80]}"
        ) from error
    if wanted not in (None, slot):
        raise CodeGoneError(f"the home gave slot {slot} in place of slot {wanted}")
    return slot


async def keep_slot(home: Link, session: Peer, slot: int) -> None:
    """Claim a slot that one has by `session` again in each later one with the home, until
    cancelled.

    Raises:
        CallRefused: another has it by then. And as `claim_slot` and `Link.ready`.
    """
    while True:
        await session.closed()
        session = await home.ready()
        with suppress(PeerClosedError):  # then in the next one
            await claim_slot(session, slot)


async def free_slot(home: Link | Peer, slot: int) -> None:
    """Wait there no longer; raises as `Peer.call`."""
    await home.call(FREE, {"slot": slot})


async def find_slot(home: Link | Peer, slot: int) -> NodeId:
    """The node that waits at a slot, by the home's word, which the exchange puts to the proof.

    Raises:
        CodeGoneError: nobody, or the answer makes no sense. CallRefused: 19, if asked too often.
            And as `Peer.call`.
    """
    answer = await home.call(FIND, {"slot": slot})
    text = answer.get("node_id") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise CodeGoneError(f"nobody waits at slot {slot} of that home")
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
    assert peer.node_id is not None  # `allow` has looked
    return peer.node_id
