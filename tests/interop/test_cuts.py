"""The transport is cut at every place of a session: in either direction, gently and hard.

An end without Close is `connection-lost` wherever it happens, and all operations on the connection
fail immediately. Handlers and other connections are not affected.
"""

import socket
import struct
from collections.abc import Awaitable, Callable
from itertools import accumulate, cycle, islice
from time import perf_counter
from typing import Any, Final, Literal, cast

import anyio
import pytest

from parley import Peer
from parley._node.errors import HandshakeError, PeerClosedError
from parley._node.protocol.codes import CloseCode
from tests import sampling
from tests.interop.meeting import SIDES, Ours, their_config, with_bystander
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import TYPES

pytestmark = pytest.mark.anyio

Direction = Literal["sent", "received"]
AT_ONCE: Final = 1.0
# Where in a frame: before it, within its length, after it, within its head and its body.
PLACES: Final = (0, 1, 4, 9, 40)
EACH: Final = 2  # of these in one frame; the next frame has others
EVERYTHING: Final = 1 << 40
WAITS: Final = 6


class Cut:
    """A socket that breaks after so many bytes of one direction; `hard` by a reset."""

    def __init__(self, sock: socket.socket, direction: Direction, size: int, *, hard: bool) -> None:
        self._sock = sock
        self._left = {"sent": EVERYTHING, "received": EVERYTHING, direction: size}
        self._hard = hard

    def __enter__(self) -> "Cut":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        """As much of it as may still pass."""
        self._sock.sendall(data[: self._left["sent"]])
        self._passed("sent", len(data))

    def recv(self, size: int) -> bytes:
        """As much as may still pass."""
        if not self._left["received"]:
            self._passed("received", 0)
        data = self._sock.recv(min(size, self._left["received"]))
        self._passed("received", len(data), last=False)
        return data

    def _passed(self, direction: Direction, size: int, *, last: bool = True) -> None:
        self._left[direction] = max(0, self._left[direction] - size)
        if self._left[direction] or not last:
            return
        if self._hard:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()
        raise ConnectionLost("cut")


def session(peer: ReferencePeer) -> None:
    """A bit of everything, and then no Close."""
    peer.handshake()
    acts.call(peer, "parley.echo", "hello")
    stream = acts.open_stream(peer, "echo")
    acts.send_data(peer, stream, bytes(300))
    peer.send("Call", 1, 9, topic="hold")
    peer.update_keys()
    acts.rekey(peer)
    acts.wait_for(peer, lambda e: e.type == TYPES["Data"] and e.stream == stream)
    acts.ping(peer)
    acts.finish(peer, stream)
    acts.ping(peer, 2)


class Waiting:
    """All that an application can wait for on one connection, and how each wait ended."""

    def __init__(self) -> None:
        self.began = 0
        self.codes: list[int] = []

    async def on(self, peer: Peer) -> None:
        """Waits, in as many ways as there are, until the connection is over."""
        try:
            stream = peer.open_stream("app/any")
        except PeerClosedError as error:
            self.began += 1
            self.codes.append(error.code)  # it was over before anybody could wait
            return

        async def fill() -> None:
            while True:
                await stream.send(bytes(3_000))

        async def pings() -> None:
            while True:
                await peer.ping()
                await anyio.sleep(0.005)

        async with anyio.create_task_group() as tasks:
            for wait in (
                lambda: peer.call("never answered", timeout=None),
                lambda: peer.call("never answered", timeout=60),
                stream.receive,
                fill,
                pings,
            ):
                self.began += 1
                tasks.start_soon(self._wait, wait)
            self.began += 1
            self.codes.append((await peer.closed()).code)

    async def _wait(self, wait: Callable[[], Awaitable[object]]) -> None:
        try:
            await wait()
        except PeerClosedError as error:
            self.codes.append(error.code)

    def over(self) -> bool:
        """Return whether no operation waits."""
        return len(self.codes) == self.began


async def cut_session(
    ours: Ours, side: Side, direction: Direction, size: int, *, hard: bool
) -> tuple[ReferencePeer, list[int]]:
    """Run one session with a cut, and return the codes of the failed local operations."""
    waiting = Waiting()
    ours.log.clear()
    known = ours.node.peers
    cut_at: list[float] = []

    async def when_dialled() -> None:
        def new() -> list[Peer]:
            return [peer for peer in ours.node.peers if peer not in known]

        await ours.until(lambda: bool(new()))
        await waiting.on(new()[0])

    def act(peer: ReferencePeer) -> ReferencePeer:
        try:
            session(peer)
        except ConnectionLost:
            return peer
        finally:
            cut_at.append(perf_counter())
        return peer

    def connect(sock: socket.socket) -> socket.socket:
        return cast(socket.socket, Cut(sock, direction, size, hard=hard))

    async with anyio.create_task_group() as tasks:
        if side == "initiator":
            tasks.start_soon(when_dialled)
        config = their_config(limits={"stream_window": 4_096})
        peer = await ours.meet(act, side, config=config, application=waiting.on, connect=connect)
        assert await ours.ended() == "connection-lost"
        await ours.until(waiting.over)
        assert perf_counter() - cut_at[0] < AT_ONCE
        tasks.cancel_scope.cancel()
    assert set(waiting.codes) <= {CloseCode.CONNECTION_LOST}
    assert len(waiting.codes) in (0, 1, WAITS)
    refusal, ours.refusal = ours.refusal, None
    assert refusal is None or isinstance(refusal, HandshakeError)
    assert refusal is None or refusal.code == CloseCode.CONNECTION_LOST
    return peer, waiting.codes


@pytest.mark.parametrize("direction", ["sent", "received"])
@pytest.mark.parametrize("side", SIDES)
async def test_a_cut_anywhere_is_connection_lost(side: Side, direction: Direction) -> None:
    async with with_bystander() as ours:
        whole, _ = await cut_session(ours, side, direction, EVERYTHING, hard=False)
        frames = whole.channel.sent if direction == "sent" else whole.channel.received
        starts = accumulate((4 + len(event) for event in frames), initial=0)
        chosen = islice(cycle(PLACES), sampling.seed % len(PLACES), None)
        places = [start + next(chosen) for start in starts for _ in range(EACH)]
        assert len(places) > 20
        waited = 0
        for number, place in enumerate(places):
            _, codes = await cut_session(ours, side, direction, place, hard=bool(number % 2))
            waited += len(codes) == WAITS
        held = [topic for topic, _ in ours.called].count("hold")
        await ours.until(lambda: ours.stopped.count("hold") == held)
        assert held > 2
        assert waited > 8
