"""What follows from a plan: keys, links, and who carries for whom."""

from collections import Counter
from itertools import chain

import pytest

from tests.node.apps.simulate.federation.oracle import Truth
from tests.node.apps.simulate.federation.plan import FederationPlan


@pytest.mark.parametrize(
    ("servers", "links"), [(2, 2), (3, 2), (3, 8), (7, 3), (10, 4), (50, 2), (64, 8), (70, 64)]
)
def test_all_are_joined_and_none_has_too_many_links(servers: int, links: int) -> None:
    plan = FederationPlan(servers=servers, links=links, seed=5)
    pairs = plan.pairs()
    assert pairs == plan.pairs() == sorted(set(pairs))
    assert all(0 <= one < other < servers for one, other in pairs)
    has = Counter(chain.from_iterable(pairs))
    wanted = min(links, servers - 1)
    assert max(has.values()) <= wanted or wanted < 2
    assert sum(has.values()) >= 0.9 * servers * wanted
    linked: dict[int, list[int]] = {number: [] for number in range(servers)}
    for one, other in pairs:
        linked[one].append(other)
        linked[other].append(one)
    assert len(Truth(linked, {}).parts()) == 1


def test_a_seed_fixes_keys_links_and_what_is_carried() -> None:
    plan, other = (FederationPlan(servers=9, seed=seed) for seed in (1, 2))
    assert plan.identity(3).node_id == FederationPlan(servers=4, seed=1).identity(3).node_id
    assert len({one.identity(server).node_id for one in (plan, other) for server in (0, 1)}) == 4
    assert plan.pairs() != other.pairs()
    near = frozenset(range(1, 9))
    assert plan.carries(0, near) == plan.carries(0, sorted(near, reverse=True))
    assert FederationPlan(servers=9, carry=1).carries(0, near) == near
    assert not FederationPlan(servers=9, carry=0).carries(0, near)
