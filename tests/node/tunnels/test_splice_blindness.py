"""Tests of a malicious server between the ends: every change is detected, and it sees no
content.
"""

from pathlib import Path

import anyio
import pytest

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.errors import ParleyError
from parley._node.handlers.registry import Entry
from parley._node.node import Node
from parley._node.protocol.codes import TUNNEL, TUNNEL_ANSWER, TUNNEL_LABEL
from parley._node.remote.requests import Call
from parley._node.remote.stream import Stream
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.testing import FakeClock
from parley._node.tunnels.tunnel_transport import TunnelWriter
from tests.node.network import eventually
from tests.node.tunnels.tunnel_rows import Passing, Row, row

CANARY = b"a canary that nobody on the way may see"
# Without `--every-cut`, one of this many bytes is changed.
STEP = 13
LONGEST = 60.0  # seconds of the clock after which everything must have ended


class Side:
    """One direction through a malicious server, which changes the byte at `flip`."""

    def __init__(self, source: TunnelStream, sink: TunnelStream, flip: int | None) -> None:
        self.source = source
        self.writer = TunnelWriter(sink, source.give_back)
        self.flip = flip
        self.seen = bytearray()
        self.back: Side

    def data_received(self, data: bytes, cost: int) -> None:
        start = len(self.seen)
        self.seen += data
        if self.flip is not None and start <= self.flip < len(self.seen):
            changed = bytearray(data)
            changed[self.flip - start] ^= 1 << self.flip % 8
            data = bytes(changed)
        self.writer.write(data, cost)

    def finished(self) -> None:
        self.writer.finish()

    def failed(self, code: int) -> None:
        self.back.source.reset(code)

    def writable(self) -> None:
        self.back.writer.writable()


class Hostile:
    """A server in between that changes one byte of each tunnel, in the direction `back` or not."""

    def __init__(self, node: Node) -> None:
        self.passing = Passing(node)
        self.flip: tuple[bool, int] | None = None
        self.sides: tuple[Side, Side] | None = None
        node.handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, self.serve)

    async def serve(self, stream: Stream) -> None:
        assert isinstance(stream, TunnelStream)
        event = await stream.receive_event()
        path = event.cells[keys.PATH]
        assert isinstance(path, list)
        place = path.index(self.passing.node.node_id)
        onward = self.passing.next(path[place + 1]).streams.open_tunnel()
        await onward.request(TUNNEL, event.subcategory, payload=event.payload)
        flips = [None, None] if self.flip is None else [None, self.flip[1]]
        if self.flip is not None and not self.flip[0]:
            flips.reverse()
        there, back = Side(stream, onward, flips[0]), Side(onward, stream, flips[1])
        there.back, back.back = back, there
        self.sides = there, back
        await event.answer(TUNNEL_ANSWER, category=TUNNEL, payload=encode({keys.CODE: 0}))
        stream.pass_to(there)
        onward.pass_to(back)
        await stream.live.closed()


async def ask(made: Row, clock: FakeClock, hostile: Hostile) -> tuple[object, list[int]]:
    """Return the result or error of a call through a new tunnel, and the bytes in each
    direction.
    """
    outcome: list[object] = []
    sizes: list[int] = []

    async def run() -> None:
        try:
            peer = await made.reach()
            outcome.append(await peer.call("secret", CANARY, timeout=LONGEST / 2))
            sizes.extend(len(side.seen) for side in hostile.sides or ())
        except ParleyError as error:
            outcome.append(error)
            return
        await peer.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await clock.settle()
        if not outcome:
            await clock.tick(LONGEST)
        await eventually(lambda: bool(outcome))
    return outcome[0], sizes


@pytest.mark.parametrize("back", [False, True])
async def test_every_byte_that_is_changed_is_noticed_at_the_end(
    back: bool, every_cut: bool, anyio_backend: str
) -> None:
    clock = FakeClock()
    async with row(5, clock=clock, patience=50.0) as made:

        @made.target.on_call("secret")
        async def secret(call: Call) -> object:
            assert call.data == CANARY
            return call.data

        hostile = Hostile(made.nodes[2])
        answer, sizes = await ask(made, clock, hostile)
        assert answer == CANARY
        assert hostile.sides is not None
        assert not any(CANARY in side.seen for side in hostile.sides)
        assert sizes[back] > 300
        for place in range(0, sizes[back], 1 if every_cut else STEP):
            hostile.flip = back, place
            answer, _ = await ask(made, clock, hostile)
            assert isinstance(answer, ParleyError), f"byte {place}: {answer!r}"


async def test_nothing_of_it_is_in_the_journals_between(tmp_path: Path, anyio_backend: str) -> None:
    async with row(5, journals=tmp_path) as made:

        @made.target.on_call("secret")
        async def secret(call: Call) -> object:
            return call.data

        async with await made.reach() as peer:
            assert await peer.call("secret", CANARY) == CANARY
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*.*"))  # noqa: ASYNC240 - over
    assert len(kept) > 3_000
    assert CANARY not in kept
