"""The end of a tunnel as a transport: what its driver is given, and when the credit goes back."""

from dataclasses import dataclass, field

import pytest

from parley._node.federation.limits import LARGEST_TUNNEL_DATA
from parley._node.protocol.flow_control import TUNNEL_WINDOW
from parley._node.tunnels.outlet import TunnelOutlet
from tests.node.network import eventually, settled
from tests.node.tunnels.ways import RawEnd, Row, end_raw, row


@dataclass
class Log:
    """A driver that notes what it is given."""

    came: list[bytes] = field(default_factory=list)
    has_ended: bool = False

    def received(self, data: bytes) -> None:
        self.came.append(data)

    def ended(self) -> None:
        self.has_ended = True

    def may_write(self) -> None:
        pass


async def opened(made: Row) -> tuple[TunnelOutlet, Log, RawEnd]:
    """An outlet, its driver, and the raw end opposite."""
    ends = end_raw(made.target)
    outlet, log = await made.open(), Log()
    outlet.serve(log)
    outlet.stream.pass_to(outlet)
    return outlet, log, ends[0]


@pytest.mark.parametrize("rest", [0, 1])
async def test_pieces_of_one_turn_are_given_as_one(rest: int, anyio_backend: str) -> None:
    async with row(3) as made:
        _, log, there = await opened(made)
        sent = bytes(range(256)) * (3 * LARGEST_TUNNEL_DATA // 256) + bytes(rest)
        there.writer.write(sent)
        await eventually(lambda: sum(map(len, log.came)) == len(sent))
        assert log.came == [sent]
        there.writer.write(b"soon")
        await eventually(lambda: log.came[-1] == b"soon")


async def test_what_comes_while_the_driver_reads_nothing_keeps_its_credit(
    anyio_backend: str,
) -> None:
    async with row(3) as made:
        outlet, log, there = await opened(made)
        outlet.pause_reading()
        there.writer.write(bytes(3 * TUNNEL_WINDOW))
        there.writer.finish()
        core, stream = there.stream.live.core, there.stream.id
        await eventually(lambda: core.credit(stream) <= 0)
        await settled()
        assert core.credit(stream) <= 0
        assert (log.came, log.has_ended) == ([], False)
        assert made.links[0][0].core.account.held < 16_384
        outlet.resume_reading()
        await eventually(lambda: log.has_ended)
        assert sum(map(len, log.came)) == 3 * TUNNEL_WINDOW
