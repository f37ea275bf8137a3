"""Tests of node/apps/codes/calls.py: accounts of one home meet by a code, and what it refuses."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Call
from parley._lbm.codec import Value
from parley._node.apps.codes.calls import (
    CLAIM,
    FIND,
    FREE,
    claim_slot,
    find_slot,
    free_slot,
    keep_slot,
    offer_code_calls,
)
from parley._node.apps.codes.code import LAST_SLOT, SECONDS, Code
from parley._node.apps.codes.errors import CodeGoneError, WrongCodeError
from parley._node.apps.codes.exchange import LABEL, CodeGiver, take_code
from parley._node.apps.codes.slots import SlotTable
from parley._node.backoff import Pauses
from parley._node.errors import CallRefused
from parley._node.node import Node
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.server.federation import Federation
from parley._node.settings import FederationSettings
from parley._node.trust.policies import AnyPeer
from parley._node.tunnels.home import Home
from tests.node.network import PATIENCE, eventually, meeting, new_node

pytestmark = pytest.mark.anyio

SOON = Pauses(first=0.01, longest=0.05)


@dataclass
class Server:
    """A home at which anybody may have an account."""

    node: Node
    address: str
    slots: SlotTable[Any]
    stack: AsyncExitStack

    async def account(self) -> tuple[Node, Home]:
        """A node that is logged in, and lets codes be tried."""
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


async def test_two_meet_through_a_home(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        (alice, home), (bob, theirs) = await server.account(), await server.account()
        slot = await claim_slot(home)
        giver = CodeGiver(alice, Code(slot, "crossover-clockwork"))
        found = await find_slot(theirs, slot)
        assert (slot, found) == (1, alice.node_id)
        peer = await theirs.reach(server.node.node_id, found)
        with pytest.raises(WrongCodeError):
            await take_code(bob, peer, Code(slot, "crossover-cobra"))
        await take_code(bob, peer, giver.code)
        taker = await giver.taker()
        assert (taker.node_id, len(taker.path)) == (bob.node_id, 2)
        await free_slot(home, slot)
        with pytest.raises(CodeGoneError, match="nobody waits at slot 1"):
            await find_slot(theirs, slot)


async def test_a_home_that_lies_leads_to_somebody_without_the_code(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as server:
        (alice, home), (bob, theirs) = await server.account(), await server.account()
        mallory, hers = await server.account()
        slot = await claim_slot(home)
        giver = CodeGiver(alice, Code.draw(slot))
        CodeGiver(mallory, Code.draw(slot))
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
        await home.ready()  # before it is kept
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
        await free_slot(theirs, slot)  # which changes nothing
        assert await claim_slot(home, slot) == slot


async def test_it_is_for_those_who_are_logged_in(anyio_backend: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        node, home = await server.account()
        stranger = await server.stack.enter_async_context(new_node())
        peer = await stranger.connect(server.address, trust=AnyPeer())
        again = await node.connect(server.address, trust=AnyPeer())  # not the session of the login
        for one in (peer, again):
            for call in (CLAIM, FIND, FREE):
                with pytest.raises(CallRefused) as error:
                    await one.call(call, {"slot": 1})
                assert error.value.code == ResultCode.NOT_AUTHORISED
        assert await claim_slot(home) == 1


@pytest.mark.parametrize("data", [7, {"slot": 0}, {"slot": LAST_SLOT + 1}, {"slot": True}, {}, "7"])
async def test_what_is_no_slot(anyio_backend: str, tmp_path: Path, data: Value) -> None:
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
