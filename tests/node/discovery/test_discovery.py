"""Two nodes on the loopback find each other; packets of other machines do no harm.

Other programs may use the same group at the same time, so each test looks only for its own nodes.
"""

import sys
import threading
from collections.abc import Sequence
from functools import partial

import anyio
import pytest
from zeroconf import const

from parley._crypto.identity import Identity, NodeId
from parley._node.discovery import mdns
from parley._node.discovery.discovery import SCHEME
from parley._node.discovery.mdns import MOST_FOUND, Gathering
from parley._node.errors import AddressError, ConfigError, NotTrustedError, UnreachableError
from parley._node.transport.address import Address
from parley.discovery import FoundNode, announce, find, resolve
from tests.node.discovery.local_network import LOOPBACK, answer, stranger
from tests.node.discovery.test_announcement import text
from tests.node.network import new_node

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ANY = "0.0.0.0"  # noqa: S104 - only this test dials it
look = partial(find, interfaces=LOOPBACK)
ask = partial(resolve, interfaces=LOOPBACK)


async def found(node_id: NodeId) -> FoundNode:
    """Return the found node; search longer if another program has just asked."""
    for seconds in (0.4, 1.5, 3, 5):
        for one in await look(seconds):
            if one.node_id == node_id:
                return one
    raise AssertionError("it is not there")


def record(node_id: NodeId, *strings: str) -> bytes:
    return text("txtvers=1", f"id={node_id}", *strings)


async def test_two_nodes_find_each_other_and_meet() -> None:
    before = threading.active_count()
    async with new_node() as ours, new_node() as theirs:
        address = await theirs.listen("tcp://127.0.0.1:0")
        async with announce(theirs, name="kitchen", server=True):
            expected = FoundNode(theirs.node_id, "kitchen", (address,), server=True)
            assert await found(theirs.node_id) == expected
            assert await ask(f"{SCHEME}://{theirs.node_id}", seconds=5) == [address]
            peer = await ours.connect(address)
            assert peer.node_id == theirs.node_id
            await peer.close()
        assert theirs.node_id not in [one.node_id for one in await look(0.4)]
    assert threading.active_count() <= before + 2  # idle threads of anyio's pool


async def test_a_node_with_a_short_code_is_found_immediately() -> None:
    async with new_node() as node:
        address = await node.listen("tcp://127.0.0.1:0")
        async with announce(node, slot=9_998):
            expected = FoundNode(node.node_id, "", (address,), slot=9_998)
            with anyio.fail_after(10):
                assert await look(3_600, slot=9_998) == [expected]
            assert await look(0.05, slot=9_997) == []


async def test_a_liar_is_a_dial_that_fails() -> None:
    """A node announced under another node's ID can't prove that ID."""
    wanted = Identity.create().node_id
    async with new_node() as ours, new_node() as liar:
        place = Address.parse(await liar.listen("tcp://127.0.0.1:0")).place
        with stranger() as sock:
            async with anyio.create_task_group() as tasks:

                async def lie() -> None:
                    while True:
                        for packet in answer(wanted.text, record(wanted, f"a0={place}")):
                            sock.send(packet)
                        await anyio.sleep(0.02)

                tasks.start_soon(lie)
                one = await found(wanted)
                tasks.cancel_scope.cancel()
        with pytest.raises(NotTrustedError):
            await ours.connect(one.addresses[0])


async def test_only_valid_announcements_are_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = [Identity.create().node_id for _ in range(4)]
    steering = record(ids[0], "name=\x1b[2J\x07", "a0=tcp://192.0.2.7:1")
    packets = [
        *answer(ids[0].text, steering),
        *answer(ids[1].text, record(ids[1], "a0=tcp://192.0.2.7:1", *["x" * 255] * 5)),
        *answer(ids[2].text, record(ids[3], "a0=tcp://192.0.2.7:1")),
        *answer("\x1b[2J", record(ids[2], "a0=tcp://192.0.2.7:1")),
        b"\xff" * 200,
    ]
    with stranger() as sock:
        async with anyio.create_task_group() as tasks:

            async def speak() -> None:
                while True:  # a busy machine may begin to listen late
                    await anyio.sleep(0.1)
                    for packet in packets:
                        sock.send(packet)

            tasks.start_soon(speak)
            nodes = [one for one in await look(0.6) if one.node_id in ids]
            tasks.cancel_scope.cancel()
    assert caplog.records == []
    assert nodes == [FoundNode(ids[0], "\x1b[2J\x07", (f"tcp://192.0.2.7:1#{ids[0]}",))]


async def test_a_search_can_be_cancelled() -> None:
    with anyio.fail_after(5), anyio.move_on_after(0.1):
        await find(60, interfaces=LOOPBACK)


async def test_announcing_can_be_cancelled_at_any_time() -> None:
    async with new_node() as node:
        await node.listen("tcp://127.0.0.1:0")
        for seconds in (0, 0.05, 0.3):
            with anyio.fail_after(5), anyio.move_on_after(seconds):
                async with announce(node):
                    await anyio.sleep_forever()
        left = [thread.name for thread in threading.enumerate() if "portal" in thread.name]
        assert left == []


async def test_an_unannounced_node_is_not_found() -> None:
    node_id = Identity.create().node_id
    with pytest.raises(UnreachableError, match=f"cannot find the node {node_id}"):
        await ask(f"mdns://{node_id}", seconds=0.1)


async def test_an_error_in_the_block_is_raised_as_it_is() -> None:
    async with new_node() as node:
        await node.listen("tcp://127.0.0.1:0")
        with pytest.raises(KeyError, match="mine"):
            async with announce(node):
                raise KeyError("mine")


async def test_addresses_that_change_are_announced_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[str] = ["127.0.0.1"]
    monkeypatch.setattr(mdns, "own_addresses", lambda: list(here))
    monkeypatch.setattr(mdns, "REFRESH", 0.05)
    async with new_node() as node:
        everywhere = await node.listen(f"tcp://{ANY}:0")
        async with announce(node, interfaces=LOOPBACK):
            one = await found(node.node_id)
            assert one.addresses == (everywhere.replace(ANY, "127.0.0.1"),)
            here.append("192.0.2.7")
            with anyio.fail_after(20):
                while one.addresses != (everywhere.replace(ANY, "192.0.2.7"),):
                    one = await found(node.node_id)


@pytest.mark.parametrize(
    "address",
    ["mdns://", "mdns://kitchen", "tcp://192.0.2.7:1", "mdns://" + "a" * 53, "mdns://" + "A" * 52],
)
async def test_invalid_mdns_addresses(address: str) -> None:
    with pytest.raises(AddressError, match="expected mdns://NODEID"):
        await resolve(address)


@pytest.mark.parametrize("seconds", [0, -1, 3601, float("nan"), float("inf")])
async def test_seconds_have_a_range(seconds: float) -> None:
    with pytest.raises(ConfigError, match="invalid seconds"):
        await find(seconds, interfaces=LOOPBACK)


@pytest.mark.parametrize("interface", ["lo", "::1", "127.0.0", ""])
async def test_an_interface_is_an_address(interface: str) -> None:
    with pytest.raises(ConfigError, match="expected an IPv4 address"):
        await find(0.1, interfaces=[interface])


async def test_an_interface_of_another_machine() -> None:
    with pytest.raises(
        UnreachableError, match=r"192\.0\.2\.99: it is not an address of this machine"
    ):
        await find(0.1, interfaces=["192.0.2.99"])


@pytest.mark.parametrize("listen", [[], ["unix"]])
async def test_a_node_without_reachable_addresses(listen: Sequence[str], tmp_path: object) -> None:
    async with new_node() as node:
        for _ in listen:
            await node.listen(f"unix://{tmp_path}/socket")
        with pytest.raises(ConfigError, match="doesn't listen on a TCP address"):
            async with announce(node):
                pass


async def test_a_node_without_encryption_is_not_announced() -> None:
    async with new_node(plaintext="only") as node:
        await node.listen("tcp://127.0.0.1:0")
        with pytest.raises(ConfigError, match="cannot prove its node ID"):
            async with announce(node):
                pass


async def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "parley._node.discovery.mdns")
    monkeypatch.delattr("parley._node.discovery.mdns")
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(ConfigError, match="needs the extra 'discovery'"):
        await find()


def test_only_so_many_nodes_are_kept() -> None:
    gathering = Gathering()
    ids = [NodeId(number.to_bytes(32)) for number in range(1_000)]
    for one in ids:
        gathering.take(one.text, record(one, "a0=tcp://192.0.2.7:1"), is_new=True)
    assert len(gathering.found) == MOST_FOUND
    assert gathering.left_out == 1_000 - MOST_FOUND
    known = ids[0].text
    gathering.take(known, record(ids[0], "a0=tcp://192.0.2.7:2"), is_new=False)
    assert gathering.found[known].addresses == (f"tcp://192.0.2.7:2#{known}",)


def test_the_library_has_the_limits_that_we_name() -> None:
    assert (const._MAX_CACHE_RECORDS, const._MAX_MSG_ABSOLUTE) == (10_000, 8_966)
