"""Row 25, floods of resume messages against whole nodes.

Peers never acknowledge received events or acknowledge too many, and unknown peers send Resumes at
full speed. Limits hold, memory stays bounded, and other peers are served.

See also tests/node/resume/test_parted_limits.py for sessions that are never resumed, and
tests/node/protocol/test_replay_buffer.py for the limits of one core.
"""

import gc
import logging
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread

from parley._crypto.randomness import random_bytes
from parley._node.protocol.connection import Connection
from parley._node.transport.address import Address
from tests.inspection import connections_of, suspended_of
from tests.interop.meeting import our_config, their_config, with_bystander
from tests.node.network import eventually, living, new_node
from tests.node.protocol.pair import START, make_config
from tests.reference.exchange import Offer
from tests.reference.handshake import hello_event
from tests.reference.identity import Identity as ReferenceIdentity
from tests.reference.peer import ReferencePeer
from tests.reference.recorded import seed
from tests.reference.resume import resume_event
from tests.reference.wire import frame

pytestmark = pytest.mark.anyio

MEBIBYTE: Final = 1 << 20
LARGE: Final = 50_000  # bytes of an answer


def traced() -> int:
    """Return the bytes allocated by Python, without garbage."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


# Peers that never acknowledge, and that acknowledge too much.

BUFFER: Final = MEBIBYTE
SILENT: Final = 16
Act = Callable[[ReferencePeer], int]


def untelling(most: int) -> Act:
    """Request large answers and read them, up to `most` bytes, without ever acknowledging them."""

    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        resumption = peer.resumption
        assert resumption is not None
        peer.tell = lambda: None  # type: ignore[method-assign]  # the one thing that it does not do
        peer.channel.sock.settimeout(0.5)
        with suppress(TimeoutError):
            for async_id in count(1):
                if resumption.received >= most:
                    break
                peer.send("Call", 1, async_id, topic="parley.echo", data=bytes(LARGE))
                peer.recv_event()
        return resumption.received

    return act


async def test_peers_that_never_tell_hold_no_more_than_their_buffers(anyio_backend: str) -> None:
    """The memory of all disconnected sessions is bounded as well."""
    bounds = our_config(resume=30.0, resume_buffer=BUFFER, parted_memory=4 * BUFFER)
    async with with_bystander(bounds) as ours:
        ours.called = Forgetful()
        tracemalloc.start()
        try:
            before = traced()
            for number in range(SILENT):
                mine = ReferenceIdentity.from_seeds(("ed25519", seed(f"silent {number}")))
                settings = their_config(identity=mine, resume_ms=30_000)
                # The first one sees that the data ends.
                most = BUFFER if number else 2 * BUFFER
                got = await ours.meet(untelling(most), config=settings)
                assert BUFFER <= got < BUFFER + 2 * LARGE
                await ours.until(lambda: len(ours.node.peers) == 1 + len(suspended_of(ours.node)))
                assert suspended_of(ours.node).held <= 4 * BUFFER
            assert traced() - before < 8 * BUFFER
        finally:
            tracemalloc.stop()
        assert 2 <= len(suspended_of(ours.node)) <= 4


class Forgetful(list[Any]):
    """Discards sent data, so that the test's own memory isn't measured."""

    def append(self, item: object) -> None:
        return


# Unknown peers.

AT_A_TIME: Final = 200
GOOD_CALLS: Final = 20


def resume_of_nobody() -> bytes:
    """Return the frame of a Resume with an unknown tag and an invalid mac."""
    return frame(resume_event(random_bytes(16), 1, 0, random_bytes(32)))


def ask_in_vain(port: int) -> None:
    """Ask for an unknown session, and read the answer to its end."""
    with socket.create_connection(("127.0.0.1", port), 5) as stranger:
        stranger.sendall(resume_of_nobody())
        answer = b""
        while piece := stranger.recv(4_096):
            answer += piece
        assert len(answer) == 4 + int.from_bytes(answer[:4])


async def test_strangers_with_resumes_at_full_speed(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer is served during the flood, its suspended session resumes, and the flood leaves no
    state.
    """
    caplog.set_level(logging.CRITICAL)
    async with new_node(resume=30.0) as server, new_node(resume=30.0) as friend:
        server.on_call("echo")(lambda call: call.data)
        address = await server.listen("tcp://127.0.0.1:0")
        port = Address.parse(address).port
        peer = await friend.connect(address)
        cores = living(Connection)
        stop = threading.Event()

        def flood() -> int:
            for number in count():
                if stop.is_set() and number >= AT_A_TIME:
                    return number
                ask_in_vain(port)
            return 0

        async def meanwhile() -> int:
            stop.clear()
            came: list[int] = []

            async def strangers() -> None:
                came.append(await to_thread.run_sync(flood))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(strangers)
                for number in range(GOOD_CALLS):
                    assert await peer.call("echo", number, timeout=5) == number
                    peer.redial()
                    await eventually(lambda number=number: peer.resumes > number)  # type: ignore[misc]  # bound now
                stop.set()
            return came[0]

        tracemalloc.start()
        try:
            assert await meanwhile() >= AT_A_TIME
            before = traced()
            assert await meanwhile() >= AT_A_TIME
            await eventually(lambda: len(connections_of(server)) == 1)
            assert traced() - before < 256 * 1024
        finally:
            tracemalloc.stop()
        await eventually(lambda: living(Connection) == cores)
        assert len(suspended_of(server)) == 0


def calls_of(connection: Connection, data: bytes) -> int:
    """Return the number of function calls to read bytes, reject the request, and answer."""
    calls = 0

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        connection.receive_data(data, START)
        if connection.state.name == "RESUMING":
            connection.refuse_resume(START)
        connection.data_to_send(START)
    finally:
        sys.setprofile(None)
    return calls


def test_a_stranger_costs_less_by_a_resume_than_by_a_hello() -> None:
    """A flood of Resumes, within the limits for unauthenticated peers, therefore costs as little as
    other floods.
    """
    hello = frame(hello_event(their_config(), bytes(32), [Offer.fresh("x25519")]))
    by_hello, by_resume = (
        calls_of(Connection(make_config(resume=30.0), initiator=False, now=START), data)
        for data in (hello, resume_of_nobody())
    )
    assert by_resume < by_hello
