"""Combined requests: each caller gets its own result."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import anyio
import pytest

from parley._node.bus.batcher import Batcher, Bounds, Cost
from parley._node.bus.errors import (
    BusClosedError,
    BusError,
    BusFullError,
    BusUnavailableError,
    InvalidEventError,
)
from parley._node.transport.backend import Backend
from tests.node.network import eventually, settled, started, task_scope

pytestmark = pytest.mark.anyio

BOUNDS: Final = Bounds(number=10, size=100, under_way=2)
REFUSED: Final = -1
ALONE: Final = -2
MISTAKE: Final = -3


class Requests:
    """Records the requests, and delays each until `gate` is open.

    The items `REFUSED` and `MISTAKE` fail for all callers, `ALONE` only for its own.
    """

    def __init__(self, backend: Backend, bounds: Bounds = BOUNDS) -> None:
        self.sent: list[list[int]] = []
        self.gate = anyio.Event()
        self.error: BusError | None = None
        self.batcher = Batcher(self.send, self.measure, backend, bounds)

    @staticmethod
    def measure(item: int) -> Cost:
        """Return a size of 40 from 10 on, a number of 6 from 100 on, another kind from 1,000 on."""
        return Cost(6 if item >= 100 else 1, 40 if 10 <= item < 100 else 1, item >= 1_000)

    async def send(self, items: Sequence[int]) -> list[Any]:
        self.sent.append(list(items))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if REFUSED in items:
            raise InvalidEventError("bad")
        if MISTAKE in items:
            raise KeyError("oh")
        return [BusFullError("full") if item == ALONE else item * 2 for item in items]

    def open(self) -> None:
        """Answer all requests from now on."""
        self.gate.set()


async def test_items_of_one_loop_iteration_share_a_request(anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        requests = Requests(backend)
        for n in range(4):
            tasks.start_soon(requests.batcher.submit, n)
        await settled()
        assert [len(sent) for sent in requests.sent] == [1, 3]  # A single item is sent immediately.
        acks = [
            await started(tasks, partial(requests.batcher.submit, n)) for n in (4, 5, 6, 1_000, 7)
        ]
        assert len(requests.sent) == BOUNDS.under_way
        requests.open()
        await settled()
        assert requests.sent[2:] == [[4, 5, 6], [1_000], [7]]
        assert acks == [[8], [10], [12], [2_000], [14]]


async def test_callers_answered_together_share_the_next_request(anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        requests = Requests(backend)
        requests.open()

        async def ask(n: int) -> None:
            for _ in range(20):
                await requests.batcher.submit(n)

        for n in range(8):
            tasks.start_soon(ask, n)
        await eventually(lambda: sum(map(len, requests.sent)) == 160)
        assert len(requests.sent) <= 50


@pytest.mark.parametrize(
    ("bad", "error"),
    [(REFUSED, InvalidEventError), (ALONE, BusFullError)],
)
async def test_one_failure_does_not_affect_other_callers(
    bad: int, error: type[BusError], anyio_backend: str
) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        requests = Requests(backend)
        acks = [
            await started(tasks, partial(requests.batcher.submit, n)) for n in (bad, 2, 3, bad, 4)
        ]
        requests.open()
        await settled()
        assert [outcome[0] for outcome in acks[1:3]] == [4, 6]
        assert acks[4] == [8]
        assert {type(acks[n][0]) for n in (0, 3)} == {error}


@pytest.mark.parametrize("error", [BusUnavailableError, KeyError])
async def test_unknown_outcome_is_not_retried(error: type[Exception], anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        requests = Requests(backend)
        numbers = [1, 2, 3, MISTAKE if error is KeyError else 4, 5]
        acks = [await started(tasks, partial(requests.batcher.submit, n)) for n in numbers]
        if error is BusUnavailableError:
            requests.error = BusUnavailableError("gone")
        requests.open()
        await settled()
        assert {type(outcome[0]) for outcome in acks[2:]} == {error}
        assert requests.sent[2:] == [numbers[2:]]


async def test_a_request_has_its_limits(anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        requests = Requests(backend)
        many = [1, 2, *range(10, 15), *range(100, 103), *range(3, 10), *range(3, 10)]
        for n in many:
            await started(tasks, partial(requests.batcher.submit, n))
        requests.open()
        await settled()
        assert [n for sent in requests.sent for n in sent] == many
        assert requests.sent[2:6] == [[10, 11], [12, 13], [14, 100], [101]]
        assert requests.sent[6] == [102, 3, 4, 5, 6]
        assert requests.sent[7] == [7, 8, 9, *range(3, 10)]
        none = Requests(backend, Bounds(0, 0, 1))
        for n in (1, 2, 3):
            tasks.start_soon(none.batcher.submit, n)
        none.open()
        await settled()
        assert sorted(none.sent) == [[1], [2], [3]]  # A single item may exceed the limit.


async def test_cancelled_caller_does_not_affect_others(anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        requests = Requests(backend, BOUNDS._replace(under_way=1))
        scopes: dict[int, anyio.CancelScope] = {}
        answers: dict[int, int] = {}

        async def ask(n: int) -> None:
            with anyio.CancelScope() as scopes[n]:
                answers[n] = await requests.batcher.submit(n)

        for n in range(4):
            await started(tasks, partial(ask, n))
        scopes[2].cancel()  # Waits.
        await settled()
        scopes[0].cancel()  # In progress, alone.
        await settled()
        assert requests.sent == [[0], [1, 3]]
        scopes[1].cancel()  # In progress, with another item.
        await settled()
        requests.open()
        await settled()
        assert answers == {3: 6}
        assert await requests.batcher.submit(5) == 10
        assert requests.sent == [[0], [1, 3], [5]]


async def test_end_of_the_loop_raises(anyio_backend: str) -> None:
    async with anyio.create_task_group() as tasks:
        async with task_scope() as backend:
            requests = Requests(backend)
            acks = [await started(tasks, partial(requests.batcher.submit, n)) for n in (1, 2, 3)]
            assert acks == [[], [], []]
        await settled()
        assert [type(outcome[0]) for outcome in acks[1:]] == [BusClosedError] * 2
        tasks.cancel_scope.cancel()
