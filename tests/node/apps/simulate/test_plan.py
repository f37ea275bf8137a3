"""The consequences of a plan: links, settings, and random numbers from a seed."""

import pytest

from parley._crypto.identity import Identity
from parley._node.apps.simulate.plan import Plan, SeededRandom
from parley._node.node import Node
from parley._node.testing import connected_nodes


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_every_node_is_reached_and_none_dials_itself(nodes: int) -> None:
    links = Plan(nodes=nodes, minutes=1, seed=4).links()
    reached = {0}
    for _ in links:
        reached |= {b for a, b in links if a in reached} | {a for a, b in links if b in reached}
    assert reached == set(range(nodes))
    assert len(links) == len({frozenset(link) for link in links})
    assert all(a != b for a, b in links)
    assert links == Plan(nodes=nodes, minutes=1, seed=4).links()


def test_draws_depend_on_the_seed_and_the_name_alone() -> None:
    def first(*names: str | int, seed: int = 1) -> bytes:
        return SeededRandom(seed, *names).randbytes(8)

    assert first("a", 1) == first("a", 1)
    assert len({first("a", 1), first("a", 2), first("b", 1), first("a", 1, seed=2)}) == 4


def test_a_payload_has_the_size_that_is_asked_for() -> None:
    draws = SeededRandom(0)
    assert len(draws.payload(128)) == 128
    assert draws.payload(0) == b""
    sizes = {len(draws.payload(None)) for _ in range(200)}
    assert min(sizes) >= 1
    assert max(sizes) > 500


async def test_a_responder_decides_on_the_suite(anyio_backend: str) -> None:
    plan = Plan(nodes=5, minutes=1)
    client = Node(Identity.create(plan.keys()), config=plan.config(0))
    server = Node(Identity.create(plan.keys()), config=plan.config(4))
    async with connected_nodes(client, server) as met:
        assert met.peer.suite is not None
        assert met.peer.suite.signing == "ml-dsa-65"
    plan = Plan(nodes=5, minutes=1, mixed=False)
    assert plan.keys() == ("ed25519",)
    assert not plan.config(4).algorithms
