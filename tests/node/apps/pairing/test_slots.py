"""Tests of node/apps/pairing/slots.py: claims of slots, and every limit."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Call
from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.apps.pairing.code import LAST_SLOT, SECONDS, Code, CodeGoneError, WrongCodeError
from parley._node.apps.pairing.exchange import LABEL, CodeListener, take_code
from parley._node.apps.pairing.slots import (
    ASKED,
    CLAIM,
    FIND,
    FREE,
    MOST_SLOTS,
    OF_A_NODE,
    SlotTable,
    claim_slot,
    find_slot,
    free_slot,
    keep_slot,
    offer_code_calls,
)
from parley._node.apps.pairing.slots import OF_AN_ADDRESS as SLOTS_OF_AN_ADDRESS
from parley._node.backoff import Backoff
from parley._node.errors import CallRefused
from parley._node.node import Node
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.server.federation import Federation
from parley._node.settings import FederationSettings
from parley._node.trust.policies import AnyPeer
from parley._node.tunnels.home_server import Home
from tests.node.network import PATIENCE, eventually, meeting, new_node

ALICE, BOB = NodeId(bytes([1]) * 32), NodeId(bytes([2]) * 32)


def address(number: int) -> str:
    return f"198.51.{number >> 8}.{number & 255}"


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(32))


class Table(SlotTable[str]):
    """A table whose sessions are names; sessions in `gone` have ended. Each call has a new
    address.
    """

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.calls = 0
        super().__init__(lambda session: session in self.gone)

    def claimed(
        self, who: NodeId, session: str = "", now: float = 0.0, wanted: int | None = None
    ) -> int:
        self.calls += 1
        return self.claim(who, session, address(self.calls), now, wanted)

    def found(self, slot: int, now: float = 0.0) -> NodeId | None:
        self.calls += 1
        return self.find(slot, address(self.calls), now)


def refused(code: ResultCode) -> "pytest.RaisesExc[CallRefused]":
    return pytest.RaisesExc(CallRefused, check=lambda error: error.code == code)


def test_the_lowest_that_is_free() -> None:
    table = Table()
    assert [table.claimed(node_id) for node_id in (ALICE, BOB, ALICE)] == [1, 2, 3]
    assert [table.found(slot) for slot in (1, 2, 3, 4)] == [ALICE, BOB, ALICE, None]
    table.free(BOB, 1)  # of another node
    table.free(ALICE, 1)
    table.free(ALICE, 1)
    assert table.found(1) is None
    assert table.claimed(BOB) == 1


def test_slot_expires() -> None:
    table = Table()
    slot = table.claimed(ALICE)
    assert table.found(slot, SECONDS - 0.1) == ALICE
    assert table.claimed(ALICE, now=SECONDS - 0.1, wanted=slot) == slot
    assert table.found(slot, 2 * SECONDS - 0.2) == ALICE
    assert table.found(slot, 2 * SECONDS - 0.1) is None
    assert len(table) == 0


def test_a_slot_is_free_when_its_session_ends() -> None:
    table = Table()
    slot = table.claimed(ALICE, "first")
    with refused(ResultCode.NOT_AUTHORISED):
        table.claimed(BOB, wanted=slot)
    assert table.claimed(ALICE, "second", wanted=slot) == slot
    table.gone.add("first")
    assert table.found(slot) == ALICE
    table.gone.add("second")
    assert table.found(slot) is None
    assert table.claimed(BOB, wanted=slot) == slot


def test_slots_of_one_node() -> None:
    table = Table()
    slot = [table.claimed(ALICE) for _ in range(OF_A_NODE)][-1]
    with refused(ResultCode.OVERLOADED):
        table.claimed(ALICE)
    assert table.claimed(ALICE, wanted=slot) == slot  # it already has this slot
    assert table.claimed(BOB) == slot + 1


def test_slots_of_one_address() -> None:
    table = Table()
    for number in range(SLOTS_OF_AN_ADDRESS):
        table.claim(node(number), "", "192.0.2.1", number * ASKED.seconds)
    late = SLOTS_OF_AN_ADDRESS * ASKED.seconds
    with refused(ResultCode.OVERLOADED):
        table.claim(node(99), "", "192.0.2.1", late)
    assert table.claim(node(99), "", "192.0.2.2", late)


def test_slots_of_all() -> None:
    table = Table()
    for number in range(MOST_SLOTS):
        assert table.claimed(node(number)) == number + 1
    with refused(ResultCode.OVERLOADED):
        table.claimed(node(MOST_SLOTS))
    assert len(table) == MOST_SLOTS < LAST_SLOT


def test_how_often_an_address_asks() -> None:
    table = Table()
    for _ in range(int(ASKED.burst)):
        table.find(1, "192.0.2.1", 0.0)
    with refused(ResultCode.OVERLOADED):
        table.find(1, "192.0.2.1", 0.0)
    with refused(ResultCode.OVERLOADED):
        table.claim(ALICE, "", "192.0.2.1", 0.0)
    table.find(1, "192.0.2.2", 0.0)
    table.find(1, "192.0.2.1", ASKED.seconds)


pytestmark = pytest.mark.anyio

SOON = Backoff(first=0.01, longest=0.05)


@dataclass
class Server:
    """A home server at which every node may have an account."""

    node: Node
    address: str
    slots: SlotTable[Any]
    stack: AsyncExitStack

    async def account(self) -> tuple[Node, Home]:
        """Create a node that is logged in and accepts codes."""
        node = await self.stack.enter_async_context(new_node())
        home = await self.stack.enter_async_context(
            node.home(self.address, exports=[LABEL], pauses=SOON)
        )
        await home.ready(PATIENCE)
        return node, home


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Server]:
    with anyio.fail_after(PATIENCE):
        async with new_node() as node, Federation(node, FederationSettings(accounts="any")):
            address = await node.listen(f"unix://{tmp_path}/home")
            async with AsyncExitStack() as stack:
                yield Server(node, address, offer_code_calls(node), stack)


async def test_two_nodes_connect_through_a_home(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        (alice, home), (bob, theirs) = await server.account(), await server.account()
        slot = await claim_slot(home)
        giver = CodeListener(alice, Code(slot, "crossover-clockwork"))
        found = await find_slot(theirs, slot)
        assert (slot, found) == (1, alice.node_id)
        peer = await theirs.reach(server.node.node_id, found)
        with pytest.raises(WrongCodeError):
            await take_code(bob, peer, Code(slot, "crossover-cobra"))
        await take_code(bob, peer, giver.code)
        taker = await giver.taker()
        assert (taker.node_id, len(taker.path)) == (bob.node_id, 2)
        await free_slot(home, slot)
        with pytest.raises(CodeGoneError, match="no sender waits at slot 1"):
            await find_slot(theirs, slot)


async def test_lying_home_leads_to_a_node_without_the_code(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as server:
        (alice, home), (bob, theirs) = await server.account(), await server.account()
        mallory, hers = await server.account()
        slot = await claim_slot(home)
        giver = CodeListener(alice, Code.draw(slot))
        CodeListener(mallory, Code.draw(slot))
        server.slots.claims[slot] = server.slots.claims[await claim_slot(hers)]
        found = await find_slot(theirs, slot)
        assert found == mallory.node_id
        peer = await theirs.reach(server.node.node_id, found)
        with pytest.raises(WrongCodeError):
            await take_code(bob, peer, giver.code)
        assert not giver.giving.taken


async def test_a_slot_ends_with_the_session(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        (_, home), (_, theirs) = await server.account(), await server.account()
        slot = await claim_slot(home)
        await home.aclose()
        await eventually(lambda: len(server.node.peers) == 1)
        with pytest.raises(CodeGoneError):
            await find_slot(theirs, slot)
        assert await claim_slot(theirs, slot) == slot
        with pytest.raises(CallRefused):
            await claim_slot(theirs, LAST_SLOT + 1)


async def test_a_slot_is_kept_over_sessions(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        (alice, home), (_, theirs) = await server.account(), await server.account()
        session = await home.ready()
        slot = await claim_slot(session)
        claimed = [server.slots.claims[slot].session]

        def again() -> bool:
            claim = server.slots.claims.get(slot)
            return claim is not None and claim.session not in claimed

        session.live.drop(CloseCode.GOING_AWAY)
        await session.closed()
        await home.ready()  # before `keep_slot`
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_slot, home, session, slot)
            for _ in range(2):
                await eventually(again)
                claimed.append(server.slots.claims[slot].session)
                assert await find_slot(theirs, slot) == alice.node_id
                (await home.ready()).live.drop(CloseCode.GOING_AWAY)
            await eventually(again)
            tasks.cancel_scope.cancel()


async def test_another_s_slot(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        (_, home), (_, theirs) = await server.account(), await server.account()
        slot = await claim_slot(home)
        with pytest.raises(CallRefused) as error:
            await claim_slot(theirs, slot)
        assert error.value.code == ResultCode.NOT_AUTHORISED
        await free_slot(theirs, slot)  # without effect
        assert await claim_slot(home, slot) == slot


async def test_calls_are_only_for_logged_in_accounts(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        node, home = await server.account()
        stranger = await server.stack.enter_async_context(new_node())
        peer = await stranger.connect(server.address, trust=AnyPeer())
        again = await node.connect(
            server.address, trust=AnyPeer()
        )  # not over the session of the login
        for one in (peer, again):
            for call in (CLAIM, FIND, FREE):
                with pytest.raises(CallRefused) as error:
                    await one.call(call, {"slot": 1})
                assert error.value.code == ResultCode.NOT_AUTHORISED
        assert await claim_slot(home) == 1


@pytest.mark.parametrize("data", [7, {"slot": 0}, {"slot": LAST_SLOT + 1}, {"slot": True}, {}, "7"])
async def test_invalid_slots(anyio_backend: str, tmp_path: Path, data: Value) -> None:
    async with serving(tmp_path) as server:
        _, home = await server.account()
        for call in (CLAIM, FIND, FREE):
            with pytest.raises(CallRefused) as error:
                await home.call(call, data)
            assert error.value.code == ResultCode.MALFORMED


@pytest.mark.parametrize("answer", [None, 7, {"slot": "7"}, {"slot": 8}, {"node_id": "7"}])
async def test_answers_that_make_no_sense(anyio_backend: str, answer: Value) -> None:
    async with meeting() as met:

        @met.server.on_call("parley.codes.*")
        async def lie(call: Call) -> Value:
            return answer

        with pytest.raises(CodeGoneError):
            await claim_slot(met.peer, 7)
        with pytest.raises(CodeGoneError):
            await find_slot(met.peer, 7)


async def test_what_a_claim_is_answered(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        node, home = await server.account()
        assert await home.call(CLAIM) == {"slot": 1, "seconds": int(SECONDS)}
        assert await home.call(FIND, {"slot": 1}) == {"node_id": str(node.node_id)}
        assert await home.call(FREE, {"slot": 1}) is None
        assert await home.call(FIND, {"slot": 1}) == {"node_id": None}
