"""Addresses of one node, and names for which addresses are found."""

from collections.abc import Sequence

import pytest

from parley._crypto.identity import Identity
from parley._node.errors import AddressError, ConfigError, UnreachableError
from parley._node.peer.addresses import MOST_PLACES, RESOLVERS, AddressList

pytestmark = pytest.mark.anyio

ID = Identity.create().node_id
OTHER = Identity.create().node_id
FOUND = [f"tcp://127.0.0.1:1#{OTHER}", "tcp://127.0.0.1:2"]


@pytest.fixture
def scheme(monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    found = list(FOUND)

    async def resolve(address: str) -> list[str]:
        assert address == f"near://{ID}"
        if not found:
            raise UnreachableError("no node is near")
        return found

    monkeypatch.setitem(RESOLVERS, "near", resolve)
    return found


async def test_what_is_found_is_pinned_to_the_node_that_was_named(scheme: list[str]) -> None:
    places = AddressList(f"near://{ID}", ["tcp://127.0.0.1:2", "tcp://127.0.0.1:3"])
    assert str(places) == f"near://{ID}"
    assert places.node_id == ID
    assert await places.found() == [f"tcp://127.0.0.1:{port}#{ID}" for port in (1, 2, 3)]
    places.answered(f"tcp://127.0.0.1:3#{ID}", ID)
    assert await places.found() == [f"tcp://127.0.0.1:{port}#{ID}" for port in (3, 1, 2)]
    scheme.clear()
    assert await places.found() == [f"tcp://127.0.0.1:{port}#{ID}" for port in (3, 2)]
    with pytest.raises(UnreachableError, match="no node is near"):
        await AddressList(f"near://{ID}").found()
    scheme += [f"tcp://127.0.0.1:{port}" for port in range(1, 40)]
    assert len(await AddressList(f"near://{ID}").found()) == MOST_PLACES


async def test_who_answers_first_is_the_node() -> None:
    places = AddressList("tcp://127.0.0.1:1", ["tcp://127.0.0.1:2"])
    assert await places.found() == ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"]
    places.answered("tcp://127.0.0.1:2", ID)
    assert places.node_id == ID
    # The link's own policy has to trust it again each time, so the addresses do not pin it.
    assert await places.found() == ["tcp://127.0.0.1:2", "tcp://127.0.0.1:1"]


def test_what_is_no_address(scheme: list[str]) -> None:
    with pytest.raises(AddressError, match="expected a node ID"):
        AddressList("near://somebody")
    with pytest.raises(AddressError):
        AddressList("far://somebody")
    with pytest.raises(ConfigError, match="list of addresses"):
        AddressList("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    with pytest.raises(ConfigError, match="different"):
        AddressList(f"near://{ID}", [f"tcp://127.0.0.1:1#{OTHER}"])
