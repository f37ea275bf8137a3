"""Tests of node/node.py: listening, dialling, trust, limits, and cleanup."""

import fcntl
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio import create_task_group, fail_after, move_on_after, to_thread
from anyio.abc import ByteStream

from parley import Call, Node, ParleyError, Peer, Stream
from parley._crypto.identity import Identity
from parley._node.errors import (
    AddressError,
    ConfigError,
    HandshakeError,
    IdentityChangedError,
    NotTrustedError,
    PeerClosedError,
    UnreachableError,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.limits import HANDSHAKE_TIMEOUT
from parley._node.remote.remote import Remote
from parley._node.testing import FakeClock, connect_nodes
from parley._node.transport.address import Address
from parley._node.transport.driver import Driver
from parley._node.transport.memory import memory_pair
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.policies import AnyPeer, FirstUse, Known, OneOf
from tests.inspection import connections_of, core_config_of, half_open_of
from tests.node.network import (
    config,
    eventually,
    meeting,
    new_node,
    nothing_left,
    open_files,
    other_tasks,
    settled,
    started,
)

pytestmark = pytest.mark.anyio


class Silent:
    """An observer that ignores all events."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


LISTEN = "tcp://127.0.0.1:0"


def echo_on(node: Node) -> None:
    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data


def place_of(address: str) -> str:
    return str(Address.parse(address).without_node_id())


@pytest.fixture
def silent() -> Iterator[tuple[socket.socket, str]]:
    """A listener that accepts connections in the kernel and never sends data."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener, f"tcp://127.0.0.1:{listener.getsockname()[1]}"


# Listening and dialling.


@pytest.mark.parametrize("kind", ["tcp", "ipv6", "name", "unix"])
async def test_nodes_connect(anyio_backend: str, kind: str, tmp_path: Path) -> None:
    place = {
        "tcp": LISTEN,
        "ipv6": "tcp://[::1]:0",
        "name": "tcp://localhost:0",
        "unix": f"unix://{tmp_path}/socket",
    }[kind]
    with fail_after(5), nothing_left():
        async with new_node() as alice, new_node() as bob:
            echo_on(bob)
            address = await bob.listen(place)
            assert bob.addresses == [address]
            assert Address.parse(address).node_id == bob.node_id
            peer = await alice.connect(address)
            assert peer.node_id == bob.node_id
            assert peer.encrypted
            assert await peer.call("echo", kind) == kind
            assert [back.node_id for back in bob.peers] == [alice.node_id]
            assert bob.peers[0].name in ("127.0.0.1", "::1", "unix")
            assert peer.name == place_of(address)
            del peer
        assert bob.peers == []
        del alice, bob
    assert not (tmp_path / "socket").exists()


async def test_repr_of_a_node(anyio_backend: str) -> None:
    async with meeting() as met:
        assert repr(met.server) == f"<Node {met.server.node_id.short}, 1 peers>"


async def test_a_name_of_several_addresses_is_served_on_all_under_one_port(
    anyio_backend: str,
) -> None:
    async with new_node() as bob:
        address = Address.parse(await bob.listen("tcp://localhost:0"))
        found = socket.getaddrinfo("localhost", address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in set(found):
            with socket.socket(family, kind, protocol) as dialler:
                dialler.connect(place)


async def test_a_port_in_use(anyio_backend: str) -> None:
    async with new_node() as alice, new_node() as bob:
        place = place_of(await bob.listen(LISTEN))
        with pytest.raises(UnreachableError, match="the address is in use") as caught:
            await alice.listen(place)
        assert place in str(caught.value)
        assert alice.addresses == []


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("tcp://192.0.2.1:0", "this machine has no such address"),
        ("unix:///nowhere/at/all", "the directory does not exist"),
        ("tcp://nowhere.invalid:1", "cannot listen on"),
    ],
)
async def test_addresses_that_cannot_be_listened_on(
    anyio_backend: str, address: str, text: str
) -> None:
    async with new_node() as node:
        with pytest.raises(UnreachableError, match=text):
            await node.listen(address)
    assert node.addresses == []


async def test_a_unix_path_in_use_is_left_alone(anyio_backend: str, tmp_path: Path) -> None:
    place = f"unix://{tmp_path}/socket"
    async with new_node() as alice, new_node() as bob:
        address = await bob.listen(place)
        with pytest.raises(UnreachableError, match="the address is in use"):
            await alice.listen(place)
        assert (await alice.connect(address)).is_open


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_another_kind_of_file_is_left_alone(
    anyio_backend: str, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "socket"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        (tmp_path / "target").write_text("precious")
        path.symlink_to(tmp_path / "target")
    async with new_node() as node:
        with pytest.raises(UnreachableError, match="another kind of file is in the way"):
            await node.listen(f"unix://{path}")
    assert path.exists()


async def test_a_stale_socket_file_is_replaced(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert path.is_socket()
    async with new_node() as alice, new_node() as bob:
        assert (await alice.connect(await bob.listen(f"unix://{path}"))).is_open
    assert not path.exists()


async def test_only_our_own_socket_file_is_removed(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with new_node() as alice:
        async with new_node() as bob:
            await bob.listen(f"unix://{path}")
            path.unlink()
            address = await alice.listen(f"unix://{path}")
        assert path.is_socket()
        async with new_node() as carol:
            assert (await carol.connect(address)).is_open
    assert not path.exists()


async def test_no_listener_at_an_address(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "parley")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with nothing_left():
        async with new_node() as node:
            for address, text in [
                (f"tcp://127.0.0.1:{port}", "nothing is listening there"),
                (f"unix://{tmp_path}/socket", "there is no such socket"),
                (f"tcp://localhost:{port}", f"cannot reach tcp://localhost:{port}"),
                ("tcp://nowhere.invalid:1", "cannot reach"),
            ]:
                with pytest.raises(UnreachableError, match=text) as caught:
                    await node.connect(address, trust=AnyPeer())
                assert isinstance(caught.value, OSError)
                del caught
            assert node.peers == []
            assert not connections_of(node)
            del node
    # A node that never started doesn't stop.
    assert all(record.getMessage().startswith("connection to ") for record in caplog.records)


async def test_invalid_addresses(anyio_backend: str) -> None:
    async with new_node() as node:
        with pytest.raises(AddressError):
            await node.connect("http://x", trust=AnyPeer())
        with pytest.raises(AddressError):
            await node.listen("here")


# Trust.


async def test_another_id_than_in_the_address(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_node() as alice, new_node() as bob:
        address = Address.parse(await bob.listen(LISTEN))
        wrong = str(address.with_node_id(Identity.create().node_id))
        with pytest.raises(NotTrustedError, match="pinned") as caught:
            await alice.connect(wrong)
        assert caught.value.code == CloseCode.PEER_NOT_TRUSTED
        assert str(bob.node_id) in str(caught.value)
        assert not connections_of(alice)
        await eventually(lambda: not connections_of(bob))
    assert "peer-not-trusted" in caplog.text


async def test_an_address_without_id_needs_a_policy(anyio_backend: str) -> None:
    async with new_node() as alice, new_node() as bob:
        place = place_of(await bob.listen(LISTEN))
        with pytest.raises(ConfigError, match="no node ID"):
            await alice.connect(place)
        assert (await alice.connect(place, trust=AnyPeer())).node_id == bob.node_id


async def test_first_use_then_known(anyio_backend: str, tmp_path: Path) -> None:
    known_peers = KnownPeers(tmp_path / "known")
    async with new_node() as alice, new_node() as bob:
        place = place_of(await bob.listen(LISTEN))
        with pytest.raises(NotTrustedError, match="known"):
            await alice.connect(place, trust=Known(known_peers))
        assert (await alice.connect(place, trust=FirstUse(known_peers))).is_open
        assert (await alice.connect(place, trust=Known(known_peers))).is_open
        assert (await alice.connect(place, trust=FirstUse(known_peers))).is_open
        entry = known_peers.by_name(place)
        assert entry is not None
        assert entry.node_id == bob.node_id
    async with new_node() as mallory, new_node() as alice:
        await mallory.listen(place)
        for policy in (FirstUse(known_peers), Known(known_peers)):
            # The original error, not only its text.
            with pytest.raises(IdentityChangedError, match="HAS CHANGED"):
                await alice.connect(place, trust=policy)


async def test_policy_waiting_for_a_file_does_not_delay_other_peers(
    anyio_backend: str, tmp_path: Path
) -> None:
    known_peers = KnownPeers(tmp_path / "known")
    known_peers.add(Identity.create().node_id, None, datetime.now(UTC))
    async with new_node() as alice, new_node(trust=FirstUse(known_peers)) as bob:
        address = await bob.listen(LISTEN)
        peer = await alice.connect(address)
        await peer.ping()  # bob has decided
        async with new_node() as carol:
            with (tmp_path / "known.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                await carol.connect(address)
                for _ in range(20):
                    assert await peer.ping() < 1.0
                    await anyio.sleep(0.01)
                assert len(bob.peers) == 1
            await eventually(lambda: len(bob.peers) == 2)


async def test_streams_have_no_name_to_remember(anyio_backend: str, tmp_path: Path) -> None:
    """Two peers connected over byte streams are different peers, not one whose ID has changed."""
    policy = FirstUse(KnownPeers(tmp_path / "known"))
    async with new_node() as alice, new_node() as bob, new_node() as carol:
        for other in (bob, carol):
            ours, theirs = memory_pair()
            async with create_task_group() as tasks:
                tasks.start_soon(other.accept_stream, theirs)
                peer = await alice.connect_stream(ours, trust=policy)
            assert peer.node_id == other.node_id
            assert policy.known_peers.lookup(other.node_id) is not None


async def test_listener_refuses_untrusted_peers(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_node() as alice, new_node(trust=OneOf([])) as bob:
        peer = await alice.connect(await bob.listen(LISTEN))
        ended = await peer.closed()
        assert ended.code == CloseCode.AUTHENTICATION_FAILED
        assert ended.remote
        with pytest.raises(PeerClosedError) as caught:
            await peer.call("echo")
        assert caught.value.code == CloseCode.AUTHENTICATION_FAILED
        assert bob.peers == []
    assert f"refused {alice.node_id}" in caplog.text


async def test_a_policy_that_fails_refuses(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(AnyPeer):
        def check(self, peer: object, name: str | None) -> None:
            raise KeyError("a bug")

    async with new_node() as alice, new_node() as bob:
        place = place_of(await bob.listen(LISTEN))
        with pytest.raises(HandshakeError) as caught:
            await alice.connect(place, trust=Broken())
        assert caught.value.code == CloseCode.INTERNAL_ERROR
        assert alice.peers == []
    assert "a bug" in caplog.text


async def test_node_cannot_connect_to_itself(anyio_backend: str) -> None:
    async with new_node() as node:
        with pytest.raises(HandshakeError):
            await node.connect(await node.listen(LISTEN))


async def test_another_network_key_gets_no_answer(anyio_backend: str) -> None:
    keys = [bytes([number]) * 32 for number in (1, 2)]
    async with (
        new_node(network_key=keys[0]) as alice,
        new_node(network_key=keys[1]) as bob,
        new_node() as carol,
        new_node(network_key=keys[0]) as dave,
    ):
        address = await bob.listen(LISTEN)
        for stranger in (alice, carol):
            with pytest.raises(HandshakeError, match="closed the connection") as caught:
                await stranger.connect(address)
            assert caught.value.code == CloseCode.CONNECTION_LOST
        assert (await alice.connect(await dave.listen(LISTEN))).is_open


async def test_nothing_in_common(anyio_backend: str) -> None:
    async with (
        new_node(algorithms={"kex": ("x25519",), "hash": ("sha512",)}) as alice,
        new_node(algorithms={"kex": ("x25519",), "hash": ("sha256",)}) as bob,
    ):
        with pytest.raises(HandshakeError, match="hash") as caught:
            await alice.connect(await bob.listen(LISTEN))
        assert caught.value.code == CloseCode.NO_COMMON_ALGORITHM
        assert not connections_of(alice)


async def test_plaintext(anyio_backend: str) -> None:
    async with (
        new_node(plaintext="only") as alice,
        new_node(plaintext="both") as bob,
        new_node() as carol,
    ):
        echo_on(bob)
        address = await bob.listen(LISTEN)
        with pytest.raises(ConfigError, match="plaintext"):
            await alice.connect(address)
        peer = await alice.connect(place_of(address), trust=AnyPeer())
        assert await peer.call("echo", 1) == 1
        assert (peer.encrypted, peer.node_id, peer.suite) == (False, None, None)
        assert (await carol.connect(address)).encrypted
        with pytest.raises(HandshakeError) as caught:
            await alice.connect(place_of(await carol.listen(LISTEN)), trust=AnyPeer())
        assert caught.value.code == CloseCode.PLAINTEXT_REFUSED
        assert await alice.listen(LISTEN) == alice.addresses[0]
        assert "#" not in alice.addresses[0]


def test_plaintext_does_not_go_with_trust_or_a_network_key() -> None:
    with pytest.raises(ConfigError, match="plaintext"):
        new_node(trust=OneOf([]), plaintext="both")
    with pytest.raises(ConfigError, match="plaintext"):
        new_node(network_key=bytes(31) + b"x", plaintext="only")


# Cancelled attempts leave no connection open.


async def test_a_dial_that_times_out_leaves_nothing(
    anyio_backend: str, silent: tuple[socket.socket, str]
) -> None:
    async with new_node() as node:
        files, tasks = open_files(), other_tasks()
        with pytest.raises(HandshakeError, match=r"not complete in 0\.05 s") as caught:
            await node.connect(silent[1], trust=AnyPeer(), timeout=0.05)
        assert caught.value.code == CloseCode.TIMEOUT
        assert not connections_of(node)
        await eventually(lambda: (open_files(), other_tasks()) == (files, tasks))


async def test_the_core_s_own_time_out_leaves_nothing(
    anyio_backend: str, silent: tuple[socket.socket, str]
) -> None:
    clock = FakeClock()
    async with Node(Identity.create(), config=config(), clock=clock) as node:
        files, tasks = open_files(), other_tasks()
        async with create_task_group() as dialling:
            outcome = await started(
                dialling, lambda: node.connect(silent[1], trust=AnyPeer(), timeout=60)
            )
            await eventually(lambda: clock.next_timer == 1_000 + HANDSHAKE_TIMEOUT)
            await clock.tick(HANDSHAKE_TIMEOUT)
        assert isinstance(outcome[0], HandshakeError)
        assert outcome[0].code == CloseCode.TIMEOUT
        assert not connections_of(node)
        await eventually(lambda: (open_files(), other_tasks()) == (files, tasks))


async def test_a_dial_cancelled_at_any_moment_leaves_nothing(anyio_backend: str) -> None:
    """Cancel after each number of turns of the loop, up to the finished dial."""
    async with new_node() as alice, new_node() as bob:
        address = await bob.listen(LISTEN)
        await (await alice.connect(address)).close()
        await eventually(lambda: not connections_of(bob))
        await settled()
        files, tasks = open_files(), other_tasks()
        met: list[Peer] = []

        async def dial() -> None:
            met.append(await alice.connect(address))

        for turns in range(400):
            async with create_task_group() as dialling:
                dialling.start_soon(dial)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                dialling.cancel_scope.cancel()
            if met:
                break
            await eventually(lambda: not connections_of(alice))
        assert len(met) == 1
        await met[0].close()
        await eventually(lambda: not connections_of(alice) and not connections_of(bob))
        await eventually(lambda: (open_files(), other_tasks()) == (files, tasks))


async def test_a_dial_cancelled_when_the_peer_is_open_closes_it(anyio_backend: str) -> None:
    """The handshake has finished, and the dialling task is cancelled before it runs again."""
    ours, theirs = memory_pair()
    async with new_node() as alice, new_node() as bob:
        accepted: list[Peer] = []

        async def accept() -> None:
            accepted.append(await bob.accept_stream(theirs))

        async with create_task_group() as tasks:
            tasks.start_soon(accept)
            async with create_task_group() as dialling:
                changed = alice.connections._peer_changed

                def cancel(remote: Remote) -> None:
                    changed(remote)
                    if cast(Peer, remote).is_open:
                        dialling.cancel_scope.cancel()

                alice.connections._peer_changed = cancel  # type: ignore[method-assign]  # to be there in time
                dialling.start_soon(lambda: alice.connect_stream(ours, trust=AnyPeer()))
        assert (await accepted[0].closed()).code == CloseCode.GOING_AWAY
        await eventually(lambda: not connections_of(alice) and not connections_of(bob))


async def test_cancelled_streams_are_closed(anyio_backend: str) -> None:
    async with new_node() as node:
        for meet in (
            lambda stream: node.connect_stream(stream, trust=AnyPeer()),
            node.accept_stream,
        ):
            ours, theirs = memory_pair()
            with move_on_after(0.01):
                await meet(ours)
            assert not connections_of(node)
            with fail_after(2):
                async for _ in theirs:
                    continue


async def test_a_stream_that_ends_in_the_handshake(anyio_backend: str) -> None:
    async with new_node() as node:
        ours, theirs = memory_pair()
        await theirs.aclose()
        with pytest.raises(HandshakeError, match="closed the connection"):
            await node.accept_stream(ours)


async def test_an_observer_that_cannot_be_made_costs_one_connection(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise OSError("the disk is full")

    bob = Node(Identity.create(), observer=broken)  # type: ignore[arg-type]  # that is the test
    async with new_node() as alice, bob:
        address = await bob.listen(LISTEN)
        files = open_files()
        for _ in range(2):
            with fail_after(2), pytest.raises(HandshakeError):
                await alice.connect(address)
        assert not connections_of(bob)
        await eventually(lambda: open_files() == files)
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize("ends_too", [False, True])
async def test_an_observer_that_fails_ends_its_connection(
    anyio_backend: str, ends_too: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Silent):
        broken = False

        def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
            if self.broken:
                raise OSError("the disk is full")

        def session_ended(self, code: int, text: str, remote: bool) -> None:
            if ends_too:
                raise OSError("the disk is still full")

    observer = Broken()
    bob = Node(Identity.create(), config=config(), observer=lambda: observer)
    async with new_node() as alice, bob, create_task_group() as tasks:
        echo_on(bob)
        alice.on_call("never")(lambda call: anyio.sleep(60))
        peer = await alice.connect(await bob.listen(LISTEN))
        assert await peer.call("echo", 1) == 1
        waiting = await started(tasks, lambda: bob.peers[0].call("never"))
        observer.broken = True
        with fail_after(3), pytest.raises(PeerClosedError):
            await peer.call("echo", 2)
        await eventually(lambda: bool(waiting))
        assert isinstance(waiting[0], PeerClosedError)
        assert waiting[0].code == CloseCode.INTERNAL_ERROR
        assert bob.peers == []
    assert "the disk is full" in caplog.text


# Half-open connections.


@pytest.mark.slow
async def test_half_open_connections_are_bounded(anyio_backend: str) -> None:
    """1,000 clients connect without sending data. The oldest are evicted, and a peer can still
    connect.
    """
    bound = 50
    async with new_node() as alice, new_node(half_open=bound) as bob:
        accepted = 0
        accept = bob.connections.accept

        def counted(name: str) -> Driver | None:
            nonlocal accepted
            accepted += 1
            return accept(name)

        bob.connections.accept = counted  # type: ignore[method-assign]  # to know how far it is
        address = await bob.listen(LISTEN)
        port = Address.parse(address).port
        strangers: list[socket.socket] = []

        def all_accepted() -> bool:
            return accepted == len(strangers)

        try:
            for _ in range(20):
                dialled = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
                strangers.extend(dialled)
                await eventually(all_accepted)
                assert len(half_open_of(bob)) <= bound
                assert len(connections_of(bob)) <= bound
            await eventually(lambda: len(half_open_of(bob)) == bound)
            with fail_after(3):
                peer = await alice.connect(address)
            echo_on(bob)
            assert await peer.call("echo", 1) == 1
            assert strangers[0].recv(1) == b""
            strangers[-1].setblocking(False)
            with pytest.raises(BlockingIOError):
                strangers[-1].recv(1)
        finally:
            for stranger in strangers:
                stranger.close()
        await eventually(lambda: not half_open_of(bob))
        assert bob.peers[0].node_id == alice.node_id


async def test_half_open_connections_of_one_address_are_evicted_for_others(
    anyio_backend: str,
) -> None:
    bound = 8
    async with new_node(half_open=bound) as bob:
        port = Address.parse(await bob.listen(LISTEN)).port

        def dialled(host: str) -> socket.socket:
            return socket.create_connection(("127.0.0.1", port), source_address=(host, 0))

        slow = dialled("127.0.0.1")
        await eventually(lambda: len(half_open_of(bob)) == 1)
        strangers = [dialled("127.0.0.2") for _ in range(3 * bound)]
        try:
            # The oldest connections of the same address are closed.
            await eventually(lambda: len(half_open_of(bob)) == bound)
            assert await to_thread.run_sync(strangers[0].recv, 1) == b""
            slow.setblocking(False)
            with pytest.raises(BlockingIOError):
                slow.recv(1)
        finally:
            for one in (slow, *strangers):
                one.close()
        await eventually(lambda: not connections_of(bob))


async def test_rejected_connections_count_as_half_open(anyio_backend: str) -> None:
    """A client that was rejected and stays connected can also be evicted."""
    async with new_node(half_open=5) as bob:
        port = Address.parse(await bob.listen(LISTEN)).port
        hello = bytes.fromhex("0000000000000101") + bytes.fromhex("a10107")  # version 7
        strangers = []
        for _ in range(20):
            stranger = socket.create_connection(("127.0.0.1", port))
            stranger.sendall(len(hello).to_bytes(4, "big") + hello)
            strangers.append(stranger)
            await settled()
            assert len(connections_of(bob)) <= 5
        for stranger in strangers:
            stranger.close()
        await eventually(lambda: not connections_of(bob))


# Lifecycle.


async def test_methods_that_need_a_running_node(anyio_backend: str) -> None:
    node = new_node()
    assert node.peers == []
    assert node.addresses == []
    for use in (node.listen(LISTEN), node.connect(LISTEN, trust=AnyPeer())):
        with pytest.raises(ParleyError, match="not running"):
            await use


async def test_a_node_runs_again_but_not_twice_at_once(anyio_backend: str) -> None:
    node = new_node()
    for _ in range(2):
        async with node:
            with pytest.raises(ParleyError, match="running already"):
                await node.__aenter__()
            await node.listen(LISTEN)
        assert node.addresses == []


async def test_handlers_are_registered_once(anyio_backend: str) -> None:
    node = new_node()
    echo_on(node)
    with pytest.raises(ParleyError, match="it has one already"):
        echo_on(node)

    async def handle(stream: Stream) -> None:
        await stream.aclose()

    assert node.on_stream("x")(handle) is handle
    with pytest.raises(ParleyError, match="it has one already"):
        node.on_stream("x")(handle)
    with pytest.raises(ParleyError, match="reserved"):
        node.on_stream("topic:x")(handle)


async def test_closing_lets_handlers_finish_and_sends_what_is_queued(
    anyio_backend: str,
) -> None:
    finish = anyio.Event()
    received = bytearray()
    async with meeting() as met:

        @met.server.on_call("long")
        async def long(call: Call) -> str:
            await finish.wait()
            return "done"

        @met.client.on_stream("sink")
        async def sink(stream: Stream) -> None:
            async for data in stream:
                received.extend(data)

        async with create_task_group() as tasks:
            outcome = await started(tasks, lambda: met.peer.call("long"))
            stream = met.back.open_stream("sink")
            await stream.send(bytes(200_000))
            await stream.send_eof()
            closing = await started(tasks, met.server.aclose)
            late = await started(tasks, lambda: met.peer.call("long"))
            refused = await started(tasks, met.peer.open_stream("sink").receive)
            await eventually(lambda: len(late + refused) == 2)
            assert not closing
            assert [getattr(error, "code", None) for error in late + refused] == [19, 35]
            finish.set()
        assert outcome == ["done"]
        assert closing == [None]
        ended = await met.peer.closed()
        assert (ended.code, ended.remote) == (CloseCode.GOING_AWAY, True)
        await eventually(lambda: len(received) == 200_000)


async def test_closing_does_not_wait_for_peers_that_connect_meanwhile(anyio_backend: str) -> None:
    """No new calls of such peers are accepted, and the end of the last call is noticed."""
    finish = anyio.Event()
    async with new_node() as late, meeting(drain_timeout=60.0) as met:

        @met.server.on_call("long")
        async def long(call: Call) -> str:
            await finish.wait()
            return "done"

        async with create_task_group() as tasks:
            outcome = await started(tasks, lambda: met.peer.call("long"))
            closing = await started(tasks, met.server.aclose)
            peer, _ = await connect_nodes(late, met.server)
            await settled()
            refused = await started(tasks, lambda: peer.call("long"))
            await eventually(lambda: bool(refused))
            assert [getattr(error, "code", None) for error in refused] == [19]
            finish.set()
        assert outcome == ["done"]
        assert closing == [None]


async def test_closing_waits_at_most_the_drain_timeout(anyio_backend: str) -> None:
    async with meeting(drain_timeout=0.05) as met:
        met.server.on_call("never")(lambda call: anyio.sleep(60))
        async with create_task_group() as tasks:
            outcome = await started(tasks, lambda: met.peer.call("never"))
            began = anyio.current_time()
            await met.server.aclose()
            assert 0.05 <= anyio.current_time() - began < 2
        assert isinstance(outcome[0], PeerClosedError)
        assert outcome[0].code == CloseCode.GOING_AWAY


async def test_exception_propagates_and_peers_get_a_close(anyio_backend: str) -> None:
    async with new_node() as alice:
        peers: list[Peer] = []

        async def leave() -> None:
            async with new_node() as bob:
                peer, _ = await connect_nodes(alice, bob)
                peers.append(peer)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await leave()
        with fail_after(2):
            assert (await peers[0].closed()).code == CloseCode.GOING_AWAY


async def test_a_cancelled_node_tells_its_peers(anyio_backend: str) -> None:
    async with new_node() as alice:
        peers: list[Peer] = []
        with anyio.CancelScope() as scope:
            async with new_node() as bob:
                peers.extend(await connect_nodes(alice, bob))
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        with fail_after(2):
            assert (await peers[0].closed()).code == CloseCode.GOING_AWAY


async def test_waiting_callers_get_an_error_when_the_node_stops(anyio_backend: str) -> None:
    """Even if the other side doesn't read, so that Close cannot be sent."""
    outer: list[object] = []
    async with new_node(drain_timeout=0) as alice, create_task_group() as tasks:
        with suppress(ZeroDivisionError):
            async with new_node() as bob:
                _, back = await connect_nodes(alice, bob)
                alice.on_call("never")(lambda call: anyio.sleep(60))
                back.driver.writable = False
                outer = await started(tasks, lambda: back.call("never"))
                raise ZeroDivisionError
        await eventually(lambda: bool(outer))
    assert isinstance(outer[0], PeerClosedError)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["memory", "tcp", "unix"])
async def test_nothing_is_left_of_a_node(anyio_backend: str, transport: str) -> None:
    async def live() -> None:
        async with meeting(transport=transport, drain_timeout=0.01) as met:

            @met.server.on_stream("hold")
            async def hold(stream: Stream) -> None:
                await anyio.sleep_forever()

            met.server.on_call("hold")(lambda call: anyio.sleep_forever())
            echo_on(met.server)
            await met.peer.open_stream("hold").send(b"x")
            async with create_task_group() as tasks:
                await started(tasks, lambda: met.peer.call("hold"))
                assert await met.peer.call("echo", 1) == 1
                tasks.cancel_scope.cancel()
            async with create_task_group() as tasks:
                outcome = await started(tasks, lambda: met.peer.call("hold"))
                await met.server.aclose()
            assert isinstance(outcome[0], PeerClosedError)

    with nothing_left():
        await live()


@pytest.mark.slow
async def test_many_nodes_in_one_process(anyio_backend: str) -> None:
    count = 12
    nodes = [new_node() for _ in range(count)]
    with fail_after(20):
        async with anyio.create_task_group() as tasks:
            ready = [anyio.Event() for _ in nodes]
            addresses: dict[int, str] = {}
            done = [0]

            async def run(number: int) -> None:
                async with nodes[number] as node:
                    node.on_call("who")(lambda call: number)
                    addresses[number] = await node.listen(LISTEN)
                    ready[number].set()
                    for event in ready:
                        await event.wait()
                    for other in range(count):
                        if other != number:
                            peer = await node.connect(addresses[other])
                            assert await peer.call("who") == other
                    done[0] += 1
                    await eventually(lambda: done[0] == count)

            for number in range(count):
                tasks.start_soon(run, number)
    assert done == [count]


@pytest.mark.parametrize(
    "anyio_backend", [pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")]
)
class TestUvloop:
    """The same tests on uvloop, whose transports differ in details."""

    @pytest.mark.slow
    @pytest.mark.parametrize("transport", ["memory", "tcp", "unix"])
    async def test_calls_and_streams(self, anyio_backend: object, transport: str) -> None:
        with nothing_left():
            async with meeting(transport=transport) as met:
                echo_on(met.server)

                @met.server.on_stream("echo")
                async def echo(stream: Stream) -> None:
                    async for data in stream:
                        await stream.send(data)

                assert await met.peer.call("echo", 1) == 1
                met.server.on_call("never")(lambda call: anyio.sleep(60))
                with pytest.raises(TimeoutError):
                    await met.peer.call("never", timeout=0.02)
                async with met.peer.open_stream("echo") as stream:
                    received = bytearray()
                    async with create_task_group() as tasks:
                        tasks.start_soon(stream.send, bytes(3 << 20))
                        while len(received) < 3 << 20:
                            received += await stream.receive()
                await met.peer.rekey()
                assert 0 < await met.peer.ping() < 1
                del met, stream
            await settled()  # uvloop closes listening sockets in its next turns

    async def test_no_listener_and_stale_sockets(
        self, anyio_backend: object, tmp_path: Path
    ) -> None:
        path = tmp_path / "socket"
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(os.fspath(path))
        async with new_node() as alice, new_node() as bob:
            with pytest.raises(UnreachableError, match="nothing is listening there"):
                await alice.connect(f"unix://{path}", trust=AnyPeer())
            assert (await alice.connect(await bob.listen(f"unix://{path}"))).is_open
            name = await bob.listen("tcp://localhost:0")
            assert (await alice.connect(name)).is_open
        assert not path.exists()


async def test_a_foreign_stream_that_fails_oddly_ends_its_connection(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(ByteStream):
        async def receive(self, max_bytes: int = 65_536) -> bytes:
            raise ZeroDivisionError("odd")

        async def send(self, item: bytes) -> None:
            await anyio.sleep_forever()

        async def send_eof(self) -> None:
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            await anyio.lowlevel.checkpoint()

    caplog.set_level(logging.INFO)
    async with new_node() as node:
        with fail_after(2), pytest.raises(HandshakeError) as caught:
            await node.connect_stream(Odd(), trust=AnyPeer())
        assert caught.value.code == CloseCode.CONNECTION_LOST
    assert "odd" in caplog.text


async def test_connection_settings_are_created_once() -> None:
    """Creating the settings for each connection would encode and validate them each time."""
    async with new_node(resume=30.0) as node:
        said = []
        for number in range(2):
            told, unresumed = (
                core_config_of(node, resumable=True),
                core_config_of(node, resumable=False),
            )
            assert (told.resume, unresumed.resume) == (30.0, 0.0)
            assert core_config_of(node, resumable=True) is told
            assert core_config_of(node, resumable=False) is unresumed
            assert told.proof_payloads == unresumed.proof_payloads
            said.append(told.proof_payloads)
            node.on_call(f"order {number}", once=True)(lambda call: None)
        assert said[0] != said[1]  # once a handler remembers calls, both settings announce it
