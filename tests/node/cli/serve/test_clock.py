"""The topic parley.clock, as a subscriber sees it."""

from datetime import UTC, datetime
from itertools import pairwise

import anyio
import pytest

from parley._node.cli.serve.builtin import CLOCK_TOPIC, offer_clock, tick
from tests.node.network import meeting

pytestmark = pytest.mark.anyio


async def test_a_note_each_interval(anyio_backend: str) -> None:
    with anyio.fail_after(10):
        async with meeting() as met, anyio.create_task_group() as tasks:
            topic = offer_clock(met.server)
            async with met.peer.subscribe(CLOCK_TOPIC) as sub:
                began = anyio.current_time()
                tasks.start_soon(tick, topic, 0.05)
                notes = [await anext(sub) for _ in range(4)]
                took = anyio.current_time() - began
            tasks.cancel_scope.cancel()
    assert took >= 0.199
    assert [note["count"] for note in notes if isinstance(note, dict)] == [1, 2, 3, 4]
    for note in notes:
        assert isinstance(note, dict)
        assert sorted(note) == ["count", "time"]
        text = str(note["time"])
        assert text.endswith("Z")
        assert abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()) < 10


class _Log:
    """A topic that only notes when something was published."""

    def __init__(self, late: float) -> None:
        self.times: list[float] = []
        self._late = late

    async def publish(self, data: object) -> None:
        self.times.append(anyio.current_time())
        if len(self.times) == 2:
            await anyio.sleep(self._late)


@pytest.mark.slow
async def test_ticks_do_not_drift_and_missed_ones_are_left_out(anyio_backend: str) -> None:
    log = _Log(late=0.25)
    began = anyio.current_time()
    with anyio.move_on_after(0.75):
        await tick(log, 0.1)  # type: ignore[arg-type]  # all that it asks of a topic
    since = [time - began for time in log.times]
    # Due at 0.1 0.2, then the first multiple after 0.45; never two at once.
    assert since[1] >= 0.199
    assert since[2] >= 0.499
    assert all(later - earlier > 0.03 for earlier, later in pairwise(since))
