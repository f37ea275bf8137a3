"""Tests that bytes of native peers are processed in turns: in order, with others in between."""

from typing import cast

import pytest

from parley._node.messaging.deadline_queue import DeadlineQueue
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import Event
from parley._node.protocol.reports import ConnectionEnded, PeerIdentified, Report
from parley._node.protocol.session import STEP_COST
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver
from parley._node.transport.fair_reads import ROUND_TIME, TURN_TIME
from tests.node.protocol.pair import Pair, Side, open_pair
from tests.node.transport.test_driver import FakeLoop, FakeOutlet

EVENTS = 500
# Clock readings while a connection runs alone, and one for rounding.
LOOKS = 4 * ROUND_TIME / TURN_TIME + 1
NEVER = float("inf")


class TickingLoop(FakeLoop):
    """A loop whose clock advances by a quarter of a turn with each reading."""

    def now(self) -> float:
        self.time += TURN_TIME / 4
        return self.time

    def one_turn(self) -> None:
        """Run callbacks that are due, but not callbacks scheduled by them."""
        due, self.due = self.due, []
        for callback in due:
            callback()


class ServedConnection:
    """A core with a driver; `numbers` are the numbers of the delivered events."""

    def __init__(self, side: Side, loop: TickingLoop) -> None:
        self.numbers: list[int] = []
        self.ended: list[int] = []
        self.transport = FakeOutlet()
        self.core: Connection = side.core
        self.identified = False
        self.driver = Driver(
            side.core, cast(Backend, loop), self._take, DeadlineQueue(), lambda now: None
        )
        self.driver.connected(self.transport)

    def _take(self, reports: list[Report]) -> None:
        for report in reports:
            if isinstance(report, Event):
                self.numbers.append(int.from_bytes(report.payload))
            elif isinstance(report, ConnectionEnded):
                self.ended.append(len(self.numbers))
            elif isinstance(report, PeerIdentified):
                self.identified = True


def flood(pair: Pair, *, sealed: bool, count: int = EVENTS) -> bytes:
    """Return events numbered from 1 that `pair.a` sends, each on its own rather than in a Batch."""
    sent = b""
    for number in range(1, count + 1):
        pair.a.core.send(1, 0, 10, 1, number.to_bytes(2), lbm=False, seal=sealed)
        sent += pair.a.take(pair.now)
    return sent


@pytest.mark.parametrize("sealed", [True, False])
def test_a_flood_is_taken_step_by_step_and_others_come_between(sealed: bool) -> None:
    loop, pair, other = TickingLoop(), open_pair(), open_pair()
    hostile, good = ServedConnection(pair.b, loop), ServedConnection(other.b, loop)
    step = 1 if sealed else STEP_COST
    count = 100 * step
    hostile.driver.received(flood(pair, sealed=sealed, count=count))
    assert hostile.numbers == list(range(1, len(hostile.numbers) + 1))
    assert step <= len(hostile.numbers) <= LOOKS * step
    assert hostile.transport.done[-1:] == ["pause"]
    good.driver.received(flood(other, sealed=True, count=1))
    assert good.numbers == []  # it runs next, after this turn of the loop
    before = loop.time
    loop.one_turn()
    assert loop.time - before <= 2 * ROUND_TIME
    assert good.numbers == [1]
    assert len(hostile.numbers) <= 2 * LOOKS * step
    loop.turn()  # without further bytes
    assert hostile.numbers == list(range(1, count + 1))
    assert hostile.transport.done.count("pause") == hostile.transport.done.count("resume") == 1


def test_what_comes_with_the_proof_is_taken_in_turns_too() -> None:
    loop, pair = TickingLoop(), Pair()
    pair.b.answer = None
    for sender in (pair.a, pair.b):
        pair.carry(sender)
    served = ServedConnection(pair.b, loop)
    served.driver.received(pair.a.take(pair.now) + flood(pair, sealed=True, count=100))
    assert served.identified
    assert served.transport.done == ["pause"]
    loop.turn()
    assert served.numbers == []
    served.core.accept_peer(pair.now)
    served.driver.step()
    loop.one_turn()
    assert 1 <= len(served.numbers) <= LOOKS
    loop.turn()
    assert served.numbers == list(range(1, 101))
