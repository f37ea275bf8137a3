"""Publishing many at a time: nobody notices who shared a request."""

from collections.abc import Sequence
from functools import partial

import anyio
import pytest

from node.bus.errors import (
    BusClosedError,
    BusError,
    BusUnavailableError,
    InvalidEventError,
)
from node.bus.model import NewEvent, Published
from node.bus.wire import limits
from node.bus.wire.gathering import UNDER_WAY, Gathering
from tests.node.bus.wire.offered import new
from tests.node.network import ground, settled, started

pytestmark = pytest.mark.anyio


class Requests:
    """What was sent, each held until `gate`; events with `bad` data are refused."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[int], bool]] = []
        self.gate = anyio.Event()
        self.error: BusError | None = None

    async def send(self, events: Sequence[NewEvent], durable: bool) -> list[Published]:
        numbers = [event.data["n"] for event in events]
        self.sent.append((numbers, durable))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if -1 in numbers:
            raise InvalidEventError("bad")
        return [Published(f"{number}-0") for number in numbers]


async def test_what_comes_meanwhile_goes_together_in_order(anyio_backend: str) -> None:
    requests = Requests()
    async with ground() as backend, anyio.create_task_group() as tasks:
        gathering = Gathering(requests.send, backend, 10**6)
        outcomes: list[list[object]] = []
        for n in range(6):
            durable = n != 5
            outcomes.append(
                await started(tasks, partial(gathering.publish, [new(n), new(n + 10)], durable))
            )
        assert len(requests.sent) == UNDER_WAY
        requests.gate.set()
        await settled()
        assert requests.sent[UNDER_WAY:] == [([2, 12, 3, 13, 4, 14], True), ([5, 15], False)]
        for n, outcome in enumerate(outcomes):
            assert outcome == [[Published(f"{n}-0"), Published(f"{n + 10}-0")]]


async def test_who_is_refused_is_refused_alone(anyio_backend: str) -> None:
    requests = Requests()
    async with ground() as backend, anyio.create_task_group() as tasks:
        gathering = Gathering(requests.send, backend, 10**6)
        outcomes = [
            await started(tasks, partial(gathering.publish, [new(n)], True))
            for n in (1, 2, 3, -1, 4)
        ]
        requests.gate.set()
        await settled()
        assert [type(outcome[0]) for outcome in outcomes] == [list] * 3 + [
            InvalidEventError,
            list,
        ]


async def test_what_nobody_knows_is_not_asked_again(anyio_backend: str) -> None:
    requests = Requests()
    requests.error = BusUnavailableError("gone")
    async with ground() as backend, anyio.create_task_group() as tasks:
        gathering = Gathering(requests.send, backend, 10**6)
        outcomes = [
            await started(tasks, partial(gathering.publish, [new(n)], True)) for n in range(5)
        ]
        requests.gate.set()
        await settled()
        assert {type(outcome[0]) for outcome in outcomes} == {BusUnavailableError}
        assert len(requests.sent) == UNDER_WAY + 1


async def test_a_request_has_its_limits(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = Requests()
    async with ground() as backend, anyio.create_task_group() as tasks:
        gathering = Gathering(requests.send, backend, 500)  # of two events' cost
        for n in range(UNDER_WAY + 4):
            tasks.start_soon(gathering.publish, [new(n)], True)
        await settled()
        requests.gate.set()
        await settled()
        assert {len(numbers) for numbers, _ in requests.sent[UNDER_WAY:]} <= {2, 3}
        many = [new(1)] * limits.LARGEST_COUNT
        requests.gate = anyio.Event()
        gathering = Gathering(requests.send, backend, 10**9)
        del requests.sent[:]
        for _ in range(UNDER_WAY + 2):
            tasks.start_soon(gathering.publish, many[:600], True)
        await settled()
        requests.gate.set()
        await settled()
        assert [len(numbers) for numbers, _ in requests.sent] == [600] * (UNDER_WAY + 2)


async def test_who_gives_up_is_not_sent_and_the_end_is_told(anyio_backend: str) -> None:
    requests = Requests()
    async with anyio.create_task_group() as tasks:
        async with ground() as backend:
            gathering = Gathering(requests.send, backend, 10**6)
            for n in range(UNDER_WAY):
                await started(tasks, partial(gathering.publish, [new(n)], True))
            with anyio.move_on_after(0.01):
                await gathering.publish([new(7)], True)
            outcome = await started(tasks, lambda: gathering.publish([new(8)], True))
            assert not outcome
        await settled()
        assert [type(one) for one in outcome] in ([BusClosedError], [])
        assert all(7 not in numbers for numbers, _ in requests.sent)
        tasks.cancel_scope.cancel()
