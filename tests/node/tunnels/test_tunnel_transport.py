"""Tests of TunnelTransport: what its driver receives, and when credit is returned."""

from dataclasses import dataclass, field

import pytest

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.protocol.codes import DIAL, TUNNEL, CloseCode
from parley._node.protocol.flow_control import FIRST_TUNNEL_DATA, TUNNEL_WINDOW
from parley._node.protocol.limits import Limits
from parley._node.tunnels.tunnel_transport import TunnelTransport
from tests.inspection import error_code_of
from tests.node.network import eventually, settled
from tests.node.tunnels.test_service import Hanging
from tests.node.tunnels.tunnel_rows import RawEnd, Row, end_raw, row


@dataclass
class Log:
    """A driver that records what it receives."""

    came: list[bytes] = field(default_factory=list)
    has_ended: bool = False

    def received(self, data: bytes) -> None:
        self.came.append(data)

    def ended(self) -> None:
        self.has_ended = True

    def resume_writing(self) -> None:
        pass


async def opened(made: Row) -> tuple[TunnelTransport, Log, RawEnd]:
    """Return a transport, its driver, and the raw opposite end."""
    ends = end_raw(made.target)
    transport, log = await made.open(), Log()
    transport.serve(log)
    transport.stream.pass_to(transport)
    return transport, log, ends[0]


@pytest.mark.parametrize("rest", [0, 1])
async def test_pieces_of_one_turn_are_given_as_one(rest: int, anyio_backend: str) -> None:
    async with row(3) as made:
        _, log, there = await opened(made)
        sent = bytes(range(256)) * (3 * FIRST_TUNNEL_DATA // 256) + bytes(rest)
        there.writer.write(sent)
        await eventually(lambda: sum(map(len, log.came)) == len(sent))
        assert log.came == [sent]
        there.writer.write(b"soon")
        await eventually(lambda: log.came[-1] == b"soon")


async def test_what_comes_while_the_driver_reads_nothing_keeps_its_credit(
    anyio_backend: str,
) -> None:
    async with row(3) as made:
        transport, log, there = await opened(made)
        transport.pause_reading()
        there.writer.write(bytes(3 * TUNNEL_WINDOW))
        there.writer.finish()
        core, stream = there.stream.live.core, there.stream.id
        await eventually(lambda: core.credit(stream) <= 0)
        await settled()
        assert core.credit(stream) <= 0
        assert (log.came, log.has_ended) == ([], False)
        assert made.links[0][0].core.account.held < 16_384
        transport.resume_reading()
        await eventually(lambda: log.has_ended)
        assert sum(map(len, log.came)) == 3 * TUNNEL_WINDOW


DIALLED = encode({keys.TRACE: bytes(16), keys.DEADLINE_MS: 60_000, keys.TO: [bytes(32)]})
MEMORY = 2**20
LARGE = 2**17


async def test_events_behind_a_dial_count_as_all_that_is_unread(anyio_backend: str) -> None:
    limits = Limits(max_payload=LARGE)
    async with row(3, peer_memory=MEMORY, write_buffer=MEMORY // 4, limits=limits) as made:
        made.nodes[1].handlers.reserved.pop("tunnel")
        switch = Hanging()
        made.nodes[1].connections.serve_tunnels(switch)
        dialler, server = made.links[0]
        streams = [dialler.streams.open_tunnel() for _ in range(20)]
        for stream in streams:
            dialler.core.send(stream.id, 1, TUNNEL, DIAL, DIALLED, lbm=True)
        await eventually(lambda: switch.asked == len(streams))
        for stream in streams:
            dialler.core.send(stream.id, 0, TUNNEL, DIAL, bytes(LARGE), lbm=False)
            await dialler.ping()
            assert server.core.account.held <= MEMORY + 2 * LARGE
        await eventually(lambda: switch.cancelled > 10)
        assert server.is_open


async def test_data_before_the_answer_is_not_kept(anyio_backend: str) -> None:
    async with row(3) as made:
        made.nodes[1].handlers.reserved.pop("tunnel")
        made.nodes[1].connections.serve_tunnels(Hanging())
        dialler, server = made.links[0]
        stream = dialler.streams.open_tunnel()
        dialler.core.send(stream.id, 1, TUNNEL, DIAL, DIALLED, lbm=True)
        await stream.send(bytes(1_000))
        await eventually(lambda: error_code_of(stream) is not None)
        assert error_code_of(stream) == CloseCode.PROTOCOL_ERROR
        await eventually(lambda: server.core.flow().unconsumed == 0 and not len(server.streams))
