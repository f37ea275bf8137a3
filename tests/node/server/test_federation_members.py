"""The members, and the servers for which a server relays, can change while it runs."""

import pytest

from parley._node.errors import ConfigError
from tests.node.server.ring import Servers, servers

pytestmark = pytest.mark.anyio

CHAIN = [(0, 1), (1, 2)]


def ids(many: Servers, *numbers: int) -> list[str]:
    return [str(many.nodes[number].node_id) for number in numbers]


def known(many: Servers, number: int) -> list[int] | None:
    return many.numbers([one.node_id for one in many.federations[number].servers])


async def test_removed_member_loses_its_link_until_it_is_added_again() -> None:
    async with servers(3, CHAIN) as three:
        await three.until(three.know_all)
        last = three.federations[2]
        last.change_members([], [])
        assert (last.links, last.servers, three.path(2, 0)) == ([], [], None)
        await three.clock.tick(30)
        assert last.links == []  # the other side dials and is refused
        last.change_members(ids(three, 0, 1), ids(three, 0, 1))
        await three.until(three.know_all)
        assert known(three, 2) == [0, 1]


async def test_a_member_that_is_new_is_known_by_cards_that_were_refused_before() -> None:
    async with servers(3, CHAIN) as three:
        await three.until(three.know_all)
        first = three.federations[0]
        first.change_members([], [])  # but the link that it dials itself is with a member
        assert known(three, 0) == [1]
        first.change_members(ids(three, 1, 2), [])
        await three.until(lambda: known(three, 0) == [1, 2])
        await three.until(lambda: three.path(0, 2) == [0, 1, 2])


async def test_server_that_relays_for_no_one_gives_no_path() -> None:
    async with servers(3, CHAIN) as three:
        await three.until(three.know_all)
        three.federations[1].change_members(ids(three, 0, 2), [])
        await three.until(lambda: three.path(0, 2) is None)
        assert three.path(0, 1) == [0, 1]


async def test_what_cannot_be_changes_nothing() -> None:
    async with servers(2, [(0, 1)]) as two:
        await two.until(two.know_all)
        for members in (ids(two, 0, 1), ["not an id"], ["b" * 52]):
            with pytest.raises(ConfigError):
                two.federations[0].change_members(members, [])
        assert two.path(0, 1) == [0, 1]
