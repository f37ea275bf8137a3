"""Row 18, unbounded work before authentication: six hundred unauthenticated connections.

They use a bounded amount of memory and time, and don't keep peers out. See also: rejected
connections count as half-open (tests/node/test_node.py
`test_rejected_connections_count_as_half_open`); the limits for one address
(tests/node/trust/test_admission_servers.py); the deadline in every state of the core
(tests/node/protocol/test_handshake_driver.py `test_the_deadline_ends_every_state_in_silence`); no
public-key work before the network mac is verified (tests/handshake).
"""

import gc
import logging
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest
from anyio import to_thread

from parley import Call, HandshakeError, Node
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import HALF_OPEN_CONNECTIONS, HANDSHAKE_EVENT_SIZE
from parley._node.transport.address import Address
from tests.inspection import connections_of
from tests.interop.meeting import their_config
from tests.node.network import eventually, living, new_node
from tests.reference.exchange import Offer
from tests.reference.handshake import hello_event
from tests.reference.wire import frame

pytestmark = pytest.mark.anyio

LISTEN = "tcp://127.0.0.1:0"
STRANGERS = 600  # more than twice the limit of half-open connections
AT_ONCE = 100  # below the system's backlog of connections to accept
ABOUT_TO_GO = 16  # whose transports are still closing
ATTEMPTS = 5
KIBIBYTE = 1_024

HELLO = frame(hello_event(their_config(), bytes(32), [Offer.fresh("x25519")]))
Say = Callable[[socket.socket], None]


def nothing(stranger: socket.socket) -> None:
    """Connect without sending data."""


def most_of_an_event(stranger: socket.socket) -> None:
    """Send the longest event that is permitted before authentication, without its last byte."""
    stranger.sendall(frame(bytes(HANDSHAKE_EVENT_SIZE))[:-1])


def a_hello(stranger: socket.socket) -> None:
    """Send a Hello, for which the node creates keys, signs and stores both; then no Proof."""
    stranger.sendall(HELLO)


def a_hello_and_most_of_a_proof(stranger: socket.socket) -> None:
    """Make the node store as much as an unauthenticated peer can."""
    a_hello(stranger)
    most_of_an_event(stranger)


# What an unauthenticated peer sends, and the memory that one may cost.
SAYINGS = {
    "nothing": (nothing, 40),
    "most of an event": (most_of_an_event, 80),
    "a Hello and most of a Proof": (a_hello_and_most_of_a_proof, 120),
}


class Crowd:
    """Unauthenticated connections from one address, the oldest first."""

    def __init__(self, address: str, say: Say) -> None:
        self.port = Address.parse(address).port
        self.say = say
        self.sockets: list[socket.socket] = []
        self._closed: set[socket.socket] = set()

    def grow(self, count: int) -> None:
        """Open more of them."""
        for _ in range(count):
            stranger = socket.create_connection(("127.0.0.1", self.port), 5)
            self.sockets.append(stranger)
            self.say(stranger)

    def are_given_up(self, oldest: int) -> bool:
        """Return whether the node has closed the oldest connections, and no others."""
        while len(self._closed) < oldest:
            stranger = self.sockets[len(self._closed)]
            if not closed(stranger):
                return False
            self._closed.add(stranger)
        assert not any(closed(stranger) for stranger in self.sockets[oldest:])
        return True


def closed(stranger: socket.socket) -> bool:
    """Return whether the other side closed, after reading the data sent before."""
    stranger.setblocking(False)
    try:
        while stranger.recv(65_536):
            continue
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@contextmanager
def crowd(address: str, say: Say) -> Iterator[Crowd]:
    strangers = Crowd(address, say)
    try:
        yield strangers
    finally:
        for stranger in strangers.sockets:
            stranger.close()


def echoing(node: Node) -> None:
    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data


@pytest.mark.parametrize(("say", "cost"), SAYINGS.values(), ids=SAYINGS.keys())
async def test_hundreds_of_strangers(
    anyio_backend: str, say: Say, cost: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is bounded, the oldest are closed, and a peer can still connect.

    The node has its default settings and real sockets, except that no handshake times out: a busy
    machine needs longer for hundreds of them.
    """
    caplog.set_level(
        logging.CRITICAL, "parley"
    )  # pytest's records keep references to the connections
    async with new_node() as alice, new_node(handshake_timeout=300.0, drain_timeout=0) as bob:
        echoing(bob)
        address = await bob.listen(LISTEN)
        friend = await alice.connect(address)
        cores = living(Connection)
        with crowd(address, say) as strangers:
            tracemalloc.start()
            try:
                before = traced()
                for count in range(AT_ONCE, STRANGERS + 1, AT_ONCE):
                    await to_thread.run_sync(strangers.grow, AT_ONCE)
                    # The newest are served, the others are closed.
                    oldest = max(count - HALF_OPEN_CONNECTIONS, 0)
                    await eventually(lambda: strangers.are_given_up(oldest))  # noqa: B023 - awaited here
                    assert len(connections_of(bob)) <= HALF_OPEN_CONNECTIONS + 1
                    if count in (AT_ONCE * 4, STRANGERS):
                        assert traced() - before < HALF_OPEN_CONNECTIONS * cost * KIBIBYTE
                        await eventually(
                            lambda: living(Connection) - cores < HALF_OPEN_CONNECTIONS + ABOUT_TO_GO
                        )
            finally:
                tracemalloc.stop()
            # Existing peers stay connected, and new ones that authenticate are accepted.
            assert await friend.call("echo", 1, timeout=5) == 1
            await comes_in(address)
        await eventually(lambda: len(connections_of(bob)) == 1)


async def comes_in(address: str) -> None:
    """Connect a new peer and use it; on a busy machine this can take several attempts."""
    async with new_node() as carol:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                peer = await carol.connect(address, timeout=5)
            except HandshakeError:  # 256 connections arrived while this loop did something else
                assert attempt < ATTEMPTS
                continue
            assert await peer.call("echo", 2, timeout=5) == 2
            return


def traced() -> int:
    """Return the bytes allocated by Python, without garbage."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def test_peers_get_in_while_strangers_keep_coming(anyio_backend: str) -> None:
    """The oldest is closed first, so a handshake may take as long as 256 new connections need."""
    stop = threading.Event()
    async with new_node(drain_timeout=0) as bob:
        echoing(bob)
        address = await bob.listen(LISTEN)
        with crowd(address, a_hello) as strangers:

            def keep_coming() -> None:
                while not stop.wait(0.002):
                    strangers.grow(1)

            await to_thread.run_sync(strangers.grow, HALF_OPEN_CONNECTIONS)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(to_thread.run_sync, keep_coming)
                try:
                    for _ in range(5):
                        await comes_in(address)
                finally:
                    stop.set()
            assert len(strangers.sockets) > HALF_OPEN_CONNECTIONS
            assert closed(strangers.sockets[0])
        assert not bob.turned_away
