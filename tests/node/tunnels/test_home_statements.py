"""A node asks its home for key statements about a node ID that cannot be reached, and does not
believe what a hostile home answers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from parley import Call, Identity
from parley._crypto.identity import RecoveryKey
from parley._crypto.statements import create_revocation, create_succession
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._node.errors import CallRefused, IdentityEndedError, TunnelRefusedError
from parley._node.node import Node
from parley._node.server.calls import offer_federation_calls
from parley._node.server.federation import Federation
from parley._node.settings.tables import FederationSettings
from parley._node.trust.policies import AnyPeer
from parley._node.tunnels.home_server import STATEMENTS_CALL, Home
from tests.node.network import PATIENCE, config

pytestmark = pytest.mark.anyio
NOW = datetime(2027, 1, 1, tzinfo=UTC)


@dataclass
class Place:
    """A home server at which Alice and the successor of Bob are logged in."""

    server: Node
    federation: Federation
    alice: Node
    home: Home
    bob: Identity
    recovery: RecoveryKey
    successor: Node


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    bob, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    own, _ = Identity.create_recoverable()
    nodes = [Node(one, config=config()) for one in (own, Identity.create(), new)]
    server, alice, successor = nodes
    settings = FederationSettings(accounts="any")
    with anyio.fail_after(PATIENCE):
        async with server, alice, successor, Federation(server, settings) as federation:

            @successor.on_call("who")
            async def who(call: Call) -> str:
                return str(successor.node_id)

            successor.topic("news", writers=lambda peer, name: True)
            address = await server.listen("memory://home-of-statements")
            exports = ["who", "publish:news"]
            async with alice.home(address) as home, successor.home(address, exports=exports) as at:
                await home.ready(PATIENCE)
                await at.ready(PATIENCE)
                yield Place(server, federation, alice, home, bob, recovery, successor)


async def test_a_home_leads_to_the_successor() -> None:
    async with place() as one:
        offer_federation_calls(one.server, one.federation)
        statement = create_succession(one.recovery, one.successor.identity)
        one.server.statements.apply(statement.encoded)
        peer = await one.home.reach(one.server.node_id, one.bob.node_id)
        assert peer.node_id == one.successor.node_id
        assert await peer.call("who") == str(one.successor.node_id)
        assert one.alice.successor_of(one.bob.node_id) == one.successor.node_id


async def test_a_home_leads_to_the_successor_of_another_home() -> None:
    async with place() as one:
        offer_federation_calls(one.server, one.federation)
        (old, recovery), node_id = Identity.create_recoverable(), one.successor.node_id
        with pytest.raises(TunnelRefusedError):
            await one.home.reach(old.node_id, node_id)
        one.server.statements.apply(create_succession(recovery, one.server.identity).encoded)
        peer = await one.home.reach(old.node_id, node_id)
        assert peer.node_id == node_id
        assert await peer.call("who") == str(node_id)


async def test_a_note_reaches_a_topic_at_the_successor_of_another_home() -> None:
    async with place() as one:
        offer_federation_calls(one.server, one.federation)
        old, recovery = Identity.create_recoverable()
        one.server.statements.apply(create_succession(recovery, one.server.identity).encoded)
        await one.home.publish(f"news@{old.node_id}/{one.successor.node_id}", "hello")
        assert one.alice.successor_of(old.node_id) == one.server.node_id


async def test_a_home_reports_the_end_of_another_home() -> None:
    async with place() as one:
        offer_federation_calls(one.server, one.federation)
        old = Identity.create()
        one.server.statements.apply(create_revocation(old).encoded)
        with pytest.raises(IdentityEndedError):
            await one.home.reach(old.node_id, one.successor.node_id)


async def test_a_home_tells_that_an_id_has_ended() -> None:
    async with place() as one:
        offer_federation_calls(one.server, one.federation)
        one.server.statements.apply(create_revocation(one.bob).encoded)
        with pytest.raises(IdentityEndedError):
            await one.home.reach(one.server.node_id, one.bob.node_id)


async def test_without_news_the_refusal_stays() -> None:
    async with place() as one:
        offer_federation_calls(one.server, one.federation)
        unrelated = create_revocation(Identity.create())
        one.server.statements.apply(unrelated.encoded)
        with pytest.raises(TunnelRefusedError):
            await one.home.reach(one.server.node_id, one.bob.node_id)
        assert not one.alice.statements.table.stored


def hostile_answers(one: Place) -> dict[str, Any]:
    succession = create_succession(one.recovery, one.successor.identity)
    forged = encode({**decode(succession.encoded), keys.SIGNATURE: bytes(64)})
    stranger = create_revocation(Identity.create()).encoded
    return {
        "nothing": None,
        "a number": 5,
        "an empty map": {},
        "a number of statements": {"statements": 5},
        "texts": {"statements": ["x", succession.encoded]},
        "a forged statement": {"statements": [forged]},
        "no statement": {"statements": [b"", b"\xff"]},
        "statements about others": {"statements": [stranger] * 10},
        "too many": {"statements": [b""] * 1_024 + [succession.encoded]},
        "too much": {"statements": [bytes(65_536), succession.encoded]},
        "withheld": {"statements": []},
    }


async def test_hostile_homes_end_nothing() -> None:
    async with place() as one:
        answers = hostile_answers(one)
        asked: list[Any] = []
        current: list[Any] = []

        @one.server.on_call(STATEMENTS_CALL)
        async def statements(call: Call) -> Any:
            asked.append(call.data)
            return current[-1]

        for name, answer in answers.items():
            current.append(answer)
            with pytest.raises(TunnelRefusedError):
                await one.home.reach(one.server.node_id, one.bob.node_id)
            assert not one.alice.statements.table.stored, name
        # The home learns only the IDs of the Dial.
        dialled = [str(one.server.node_id), str(one.bob.node_id)]
        assert asked == [{"of": dialled}] * len(answers)


async def test_a_home_that_refuses_or_never_answers_costs_only_the_time_of_the_call() -> None:
    async with place() as one:
        forever: list[bool] = [False]

        @one.server.on_call(STATEMENTS_CALL)
        async def statements(call: Call) -> None:
            if forever[0]:
                await anyio.sleep_forever()
            raise CallRefused(19)

        with pytest.raises(TunnelRefusedError):
            await one.home.reach(one.server.node_id, one.bob.node_id)
        forever[0] = True
        with pytest.raises(TunnelRefusedError):
            await one.home.reach(one.server.node_id, one.bob.node_id, timeout=0.3)


async def test_a_topic_at_an_ended_id_is_not_the_home_s_own() -> None:
    """The home's ID is unknown before it answers, and an ended ID has no current one."""
    ended = Identity.create()
    published: list[str] = []

    def allow(peer: object, name: str) -> bool:
        published.append(name)
        return True

    server, alice = (Node(Identity.create(), config=config()) for _ in range(2))
    settings = FederationSettings(accounts="any")
    with anyio.fail_after(PATIENCE):
        async with server, alice, Federation(server, settings):
            server.topic("orders", writers=allow)
            address = (await server.listen("memory://unknown-home")).partition("#")[0]
            alice.statements.apply(create_revocation(ended).encoded)
            async with alice.home(address, trust=AnyPeer()) as home:
                with pytest.raises(IdentityEndedError):
                    await home.publish(f"orders@{ended.node_id}", "secret", timeout=PATIENCE)
    assert published == []
