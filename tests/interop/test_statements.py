"""Either side presents the statements that lead to its ID, and the other side acts on them.

Section 22 of docs/protocol.md, with either side dialling.
"""

import pytest

from parley import Identity, NodeId, Peer, Statement, create_succession
from parley.trust import KeyStatements
from tests.interop.meeting import SIDES, our_node, their_config
from tests.reference import acts, statements
from tests.reference.handshake import Config
from tests.reference.peer import ReferencePeer, Side
from tests.reference.vectors_statements import Draft, key_of, second_form
from tests.reference.wire import CELLS, Violation

pytestmark = pytest.mark.anyio

FIRST, SECOND, THIRD = ((key_of(2 * number), key_of(2 * number + 1)) for number in (20, 21, 22))
CHAIN = tuple(
    Draft(old=old[0], recovery=old[1], new=new[0], new_recovery=new[1]).encode()
    for old, new in ((FIRST, SECOND), (SECOND, THIRD))
)
FIRST_ID = NodeId(second_form(*FIRST).id)
THEIRS = second_form(*THIRD)


def presenting(*presented: object) -> Config:
    """The reference's settings with these statements."""
    return their_config(identity=THEIRS, statements=presented)


def echo(peer: ReferencePeer) -> ReferencePeer:
    """Handshake, one call, Close."""
    peer.handshake()
    assert acts.call(peer, "parley.echo", "hi")[CELLS["data"]] == "hi"
    acts.close(peer)
    return peer


async def closed(peer: Peer) -> None:
    """Wait for the end."""
    await peer.closed()


@pytest.mark.parametrize("side", SIDES)
async def test_our_node_reads_what_the_reference_presents(side: Side) -> None:
    seen: list[tuple[NodeId, ...]] = []

    async def application(peer: Peer) -> None:
        seen.append(peer.predecessors)
        await peer.closed()

    async with our_node(watch=[FIRST_ID]) as ours:
        await ours.meet(echo, side, config=presenting(*CHAIN), application=application)
        table = ours.node.statements.table
        assert [one.statement.encoded for one in table.stored.values()] == list(CHAIN)
        assert ours.node.successor_of(FIRST_ID) == THEIRS.id
        if side == "responder":
            assert seen == [(FIRST_ID, NodeId(second_form(*SECOND).id))]


@pytest.mark.parametrize("side", SIDES)
async def test_the_reference_reads_what_our_node_presents(side: Side) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    stored = KeyStatements()
    stored.apply(create_succession(recovery, new).encoded)
    async with our_node(identity=new, statements=stored) as ours:
        peer = await ours.meet(echo, side, application=closed)
        remote = peer.session.remote
        assert remote is not None
        assert remote.id == new.node_id
        found: list[statements.ReadStatement] = []
        chain = statements.read_chain(remote.presented, remote.id)
        statements.store_chain(chain, found, [old.node_id])
        assert [one.origin for one in found] == [old.node_id]


@pytest.mark.parametrize("side", SIDES)
async def test_statements_of_another_node_change_nothing(side: Side) -> None:
    async with our_node(watch=[FIRST_ID]) as ours:
        config = presenting(*CHAIN[::-1], b"not LBM")
        await ours.meet(echo, side, config=config, application=closed)
        assert not ours.node.statements.table.stored
        assert any("ignored statements" in line for line in ours.log)


def test_the_reference_refuses_a_malformed_cell() -> None:
    for presented in ([b""] * 5, [bytes(8_193)], ["text"], None):
        with pytest.raises(Violation):
            statements.read_presented({CELLS["statements"]: presented})


def test_both_read_the_same_chain() -> None:
    for encoded, read in zip(CHAIN, statements.read_chain(CHAIN, THEIRS.id), strict=True):
        assert Statement.parse(encoded).slot == read.slot
