"""Epochs are counted as the core reports them, and only under load."""

import time

import anyio
import pytest

from parley._node.protocol.observer import Observer
from tests.node.protocol.pair import ALICE, BOB, FAST, Pair, make_config
from tests.soak.epochs import Epochs


def observed() -> tuple[Pair, Epochs, Epochs]:
    """Return two connected sides, and the sums of each."""
    sums = Epochs(), Epochs()
    observers: tuple[Observer, Observer] = (sums[0].observer(), sums[1].observer())
    names = {"algorithms": FAST}
    pair = Pair(make_config(ALICE, **names), make_config(BOB, **names), observers=observers)
    pair.pump()
    return pair, *sums


def test_each_change_of_keys_is_counted_once() -> None:
    pair, ours, theirs = observed()
    pair.a.core.update_keys(pair.now)
    pair.a.core.update_keys(pair.now)
    pair.a.core.rekey(pair.now)
    pair.pump()
    pair.a.core.close(pair.now)
    pair.pump()
    assert (ours.sent, ours.received, ours.rekeys) == (3, 1, 1)
    assert (theirs.sent, theirs.received, theirs.rekeys) == (1, 3, 1)
    assert ours.connections == theirs.connections == 1
    assert ours.events == theirs.events > 5


def test_events_after_the_load_are_not_counted() -> None:
    pair, ours, _ = observed()
    pair.a.core.update_keys(pair.now)
    ours.rest()
    pair.a.core.update_keys(pair.now)
    pair.a.core.close(pair.now)
    pair.pump()
    assert (ours.connections, ours.sent) == (1, 1)


def test_keys_are_in_use_from_their_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("tests.soak.epochs.perf_counter", lambda: now[0])
    sums = Epochs()
    counter = sums.observer()
    counter.epoch_began(True, 0, b"", 0)
    for epoch, (idle, used) in enumerate([(9, 0.5), (0, 2), (1, 1.5)], 1):
        now[0] += idle
        counter.event(True, b"", b"")
        now[0] += used
        counter.epoch_began(True, epoch, b"", 0)
    assert (sums.longest, counter.sent) == (2, 3)
    now[0] += 9
    counter.event(False, b"", b"")
    sums.add(counter, 22.0)
    assert sums.longest == 2
    assert sums.summary()["connections"] == 1


async def test_a_loop_that_is_late_is_seen(anyio_backend: str) -> None:
    sums, rest = Epochs(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sums.watch_loop, rest)
        await anyio.sleep(0.01)
        time.sleep(0.15)  # noqa: ASYNC251 - the blocked loop is under test
        await anyio.sleep(0.01)
        rest.set()
    assert sums.lag > 0.05
