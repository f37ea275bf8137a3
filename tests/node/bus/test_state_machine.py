"""Each store behaves like the model for any sequence of operations.

After each step, the result, the stream and the group are compared with the model; at the end,
everything is. IDs differ between stores, so each ID of the model is mapped to the store's ID of the
same event. Redis uses its own clock, so an event there is either due or not yet due.
"""

import asyncio
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from parley._node.bus.config import BusConfig
from parley._node.bus.data import encode_body
from parley._node.bus.identifiers import AFTER_ALL, BEFORE_ALL, dead_name, parse_id
from parley._node.bus.model import Delivery, NewEvent, StoredEvent, Trim
from parley._node.bus.sqlite.store import SqliteStore
from parley._node.bus.store import Store
from parley._node.transport.asyncio_backend import AsyncioBackend
from tests.node.bus.model_store import ModelStore
from tests.redis_server import RedisServer

pytestmark = (
    pytest.mark.hypothesis
)  # Pytest cannot see these parameters: the tests run a state machine themselves.

Answer = TypeVar("Answer")
# An end of the stream; or an event by number, and whether to begin after it or with it.
Place = str | tuple[int, bool]

NAMES = ("a.x", "a.y")
GROUPS = ("g", "h")
CONSUMERS = ("c", "d")
HOLDER = "whoever holds it"
EVER = 1e6  # Seconds, more than a test takes.
ALL = 1_000

# Mostly the same stream and group, so that steps affect each other.
names = st.sampled_from((NAMES[0], NAMES[0], NAMES[0], NAMES[1]))
any_names = st.sampled_from((*NAMES, *NAMES, *map(dead_name, NAMES)))
groups = st.sampled_from((GROUPS[0], GROUPS[0], GROUPS[0], GROUPS[1]))
consumers = st.sampled_from(CONSUMERS)
# The consumer that has an event, more often than not.
holders = st.sampled_from((HOLDER, HOLDER, *CONSUMERS))
counts = st.integers(1, 4)
# By number: first the events pending in the group, then all published events.
picks = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5, 8))
some_picks = st.lists(picks, max_size=4)
places: st.SearchStrategy[Place] = st.one_of(
    st.sampled_from((BEFORE_ALL, AFTER_ALL)), st.tuples(picks, st.booleans())
)
keys = st.one_of(st.none(), st.sampled_from("klm"))


class StoreMachine(RuleBasedStateMachine):
    """Runs the same operations on a store and the model. Subclasses differ in the clock."""

    takes_clock: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.time = 1_700_000_000.0
        window = 50.5 if self.takes_clock else EVER
        self.config = BusConfig(clock=lambda: self.time, idempotency_window=window)
        self.prepare()
        self.runner = asyncio.Runner()
        self.backend = self.run(backend())
        self.model, self.store = ModelStore(self.config), self.new_store()
        self.both(lambda store: store.open(self.backend))
        # By stream: the store's IDs of events by the model's IDs, in order.
        self.ids: dict[str, dict[str, str]] = defaultdict(dict)
        self.published = 0

    def prepare(self) -> None:
        """Prepare the directory or server of the store."""

    def new_store(self) -> Store:
        """Return an unopened store on the same data."""
        raise AssertionError("a machine is of a store")

    def run(self, asked: Coroutine[Any, Any, Answer]) -> Answer:
        return self.runner.run(asked)

    def both(self, ask: Callable[[Store], Coroutine[Any, Any, Answer]]) -> tuple[Answer, Answer]:
        return self.run(ask(self.model)), self.run(ask(self.store))

    def same(self, ask: Callable[[Store], Coroutine[Any, Any, Answer]]) -> Answer:
        """Check that both return the same result, which has no IDs."""
        expected, got = self.both(ask)
        assert got == expected
        return expected

    # Operations.

    @initialize(number=st.integers(0, 9), place=places)
    def begin(self, number: int, place: Place) -> None:
        """Publish and read some events, so that most steps have an effect."""
        for name, several in zip(NAMES, (9, number), strict=True):
            self.publish(name, [None, *["m"] * (several > 4), *[None] * several], True)
            self.join(name, GROUPS[0], CONSUMERS[0], BEFORE_ALL)
            self.join(name, GROUPS[1], CONSUMERS[0], place)
            self.read(name, GROUPS[0], CONSUMERS[0], 4)

    @rule(name=names, keys=st.lists(keys, min_size=1, max_size=4), durable=st.booleans())
    def publish(self, name: str, keys: list[str | None], durable: bool) -> None:
        events = []
        for key in keys:
            self.published += 1
            data = {"number": self.published, "text": "é" * self.published}
            events.append(NewEvent(name, data, encode_body(data, 2**20), key, self.published % 3))
        expected, got = self.both(lambda store: store.publish(events, durable=durable))
        for ours, theirs in zip(expected, got, strict=True):
            assert theirs.duplicate == ours.duplicate
            assert self.ids[name].setdefault(ours.id, theirs.id) == theirs.id
        self.assert_in_order(name)

    @rule(name=names, group=groups, consumer=consumers, place=places)
    def join(self, name: str, group: str, consumer: str, place: Place) -> None:
        ours, theirs = self.position(name, place)
        self.run(self.model.join(name, group, consumer, ours))
        self.run(self.store.join(name, group, consumer, theirs))
        self.compare(name, group)

    @rule(name=names, group=groups, consumer=consumers, count=counts)
    def read(self, name: str, group: str, consumer: str, count: int) -> None:
        # The start of a new group depends on the positions of earlier consumers.
        if self.is_there(name, group) and self.may_ask(name, group, consumer):
            self.handed_out(lambda store: store.read(name, group, consumer, count, 0), name)
            self.compare(name, group)

    @rule(name=names, group=groups, consumer=consumers, count=counts)
    def own(self, name: str, group: str, consumer: str, count: int) -> None:
        if not self.may_ask(name, group, consumer):
            return
        self.handed_out(lambda store: store.recover_pending(name, group, consumer, count), name)
        self.compare(name, group)

    @rule(name=names, group=groups, consumer=consumers, count=counts, idle=st.data())
    def claim(self, name: str, group: str, consumer: str, count: int, idle: st.DataObject) -> None:
        seconds = idle.draw(self.durations())
        if not self.may_ask(name, group, consumer):
            return
        self.handed_out(lambda store: store.claim(name, group, consumer, count, seconds), name)
        self.compare(name, group)

    @rule(name=names, group=groups, consumer=holders, picked=some_picks)
    def touch(self, name: str, group: str, consumer: str, picked: list[int]) -> None:
        consumer = self.holder(name, group, consumer, picked)
        if not self.may_ask(name, group, consumer):
            return
        ours, theirs = self.pick(name, group, picked)
        self.run(self.model.touch(name, group, consumer, ours))
        self.run(self.store.touch(name, group, consumer, theirs))
        self.compare(name, group)

    @rule(name=names, group=groups, picked=some_picks)
    def ack(self, name: str, group: str, picked: list[int]) -> None:
        ours, theirs = self.pick(name, group, picked)
        acknowledged = self.run(self.model.ack(name, group, ours))
        assert self.run(self.store.ack(name, group, theirs)) == acknowledged
        self.compare(name, group)

    @rule(name=names, group=groups, consumer=holders, picked=picks, delay=st.data())
    def nack(self, name: str, group: str, consumer: str, picked: int, delay: st.DataObject) -> None:
        seconds = delay.draw(self.durations())
        consumer = self.holder(name, group, consumer, [picked])
        consumer = self.holder(name, group, consumer, [picked])
        self.sign(name, group, consumer)
        for ours, theirs in zip(*self.pick(name, group, [picked]), strict=True):
            was = self.run(self.model.nack(name, group, consumer, ours, seconds, "no"))
            assert self.run(self.store.nack(name, group, consumer, theirs, seconds, "no")) == was
        self.compare(name, group)

    @rule(name=names, group=groups, consumer=holders, picked=some_picks)
    def release(self, name: str, group: str, consumer: str, picked: list[int]) -> None:
        consumer = self.holder(name, group, consumer, picked)
        self.sign(name, group, consumer)
        ours, theirs = self.pick(name, group, picked)
        self.run(self.model.release(name, group, consumer, ours))
        self.run(self.store.release(name, group, consumer, theirs))
        self.compare(name, group)

    @rule(name=names, group=groups, consumer=holders, picked=picks)
    def bury(self, name: str, group: str, consumer: str, picked: int) -> None:
        consumer = self.holder(name, group, consumer, [picked])
        self.sign(name, group, consumer)
        for ours, theirs in zip(*self.pick(name, group, [picked]), strict=True):
            expected = self.run(self.model.bury(name, group, consumer, ours, "dead"))
            got = self.run(self.store.bury(name, group, consumer, theirs, "dead"))
            assert (got is None) == (expected is None)
            if got is not None and expected is not None:
                self.ids[dead_name(name)][expected] = got
                self.assert_in_order(dead_name(name))
                self.compare_history(dead_name(name))
        self.compare(name, group)

    @rule(name=names, group=groups, picked=some_picks)
    def redeliver(self, name: str, group: str, picked: list[int]) -> None:
        ours, theirs = self.pick(name, group, picked)
        there = self.run(self.model.redeliver(name, group, ours))
        got = self.run(self.store.redeliver(name, group, theirs))
        assert sorted(got) == sorted(self.ids[name][id] for id in there)
        self.compare(name, group)

    @rule(name=names, group=groups, place=places)
    def rewind(self, name: str, group: str, place: Place) -> None:
        ours, theirs = self.position(name, place)
        self.run(self.model.rewind(name, group, ours))
        self.run(self.store.rewind(name, group, theirs))
        self.compare(name, group)

    @rule(name=any_names, length=st.none() | st.integers(0, 9), before=st.none() | picks)
    def trim(self, name: str, length: int | None, before: int | None) -> None:
        ours = theirs = None
        if before is not None and self.ids[name]:
            ours, theirs = list(self.ids[name].items())[before % len(self.ids[name])]
        taken = self.run(self.model.trim(name, Trim(max_length=length, before=ours)))
        got = self.run(self.store.trim(name, Trim(max_length=length, before=theirs)))
        assert got == taken
        self.compare_history(name)
        for group in GROUPS:
            self.compare(name, group)

    @rule(name=any_names, picked=some_picks)
    def drop(self, name: str, picked: list[int]) -> None:
        ours, theirs = self.pick(name, GROUPS[0], picked)
        taken = self.run(self.model.drop(name, ours))
        assert self.run(self.store.drop(name, theirs)) == taken
        self.compare_history(name)
        for group in GROUPS:
            self.compare(name, group)

    @rule(name=names, group=groups, idle=st.data())
    def remove_consumers(self, name: str, group: str, idle: st.DataObject) -> None:
        seconds = idle.draw(self.durations())
        self.compare_consumers(name, group)
        self.same(lambda store: store.remove_consumers(name, group, seconds))
        self.compare(name, group)

    @rule(name=names, group=groups)
    def remove_group(self, name: str, group: str) -> None:
        self.same(lambda store: store.remove_group(name, group))
        self.compare(name, group)

    @rule(name=any_names, place=places, until=st.none() | picks, count=counts)
    def history(self, name: str, place: Place, until: int | None, count: int) -> None:
        after = self.position(name, place)
        last: tuple[str | None, str | None] = (None, None)
        if until is not None:
            last = self.position(name, (until, True))
        expected = self.run(self.model.history(name, after[0], last[0], count, 0))
        got = self.run(self.store.history(name, after[1], last[1], count, 0))
        self.assert_events(name, expected, got)

    @rule(seconds=st.sampled_from((1.0, 10.0, 100.0)))
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(name=names, group=groups, consumer=consumers, counted=counts)
    def restart(self, name: str, group: str, consumer: str, counted: int) -> None:
        """Restart: close the store, and recover its pending events in a new process."""
        self.both(lambda store: store.aclose())
        self.store = self.new_store()
        self.both(lambda store: store.open(self.backend))
        self.own(name, group, consumer, counted)

    def teardown(self) -> None:
        try:
            for name in (*NAMES, *map(dead_name, NAMES)):
                self.compare_history(name)
                for group in GROUPS:
                    self.compare(name, group)
                    self.compare_consumers(name, group)
            expected, got = self.both(lambda store: store.streams())
            assert [(one.name, one.length) for one in got] == [
                (one.name, one.length) for one in expected
            ]
            for ours, theirs in zip(expected, got, strict=True):
                named = self.ids[ours.name]
                ends = ours.first_id and named[ours.first_id], ours.last_id and named[ours.last_id]
                assert (theirs.first_id, theirs.last_id) == ends
        finally:
            self.both(lambda store: store.aclose())
            self.run(self.backend.aclose())
            self.runner.close()

    # Comparisons.

    def durations(self) -> st.SearchStrategy[float]:
        return st.sampled_from((0.0, 1.0, 10.0) if self.takes_clock else (0.0, EVER))

    def is_there(self, name: str, group: str) -> bool:
        return any(one.name == group for one in self.run(self.model.groups(name)))

    def may_ask(self, name: str, group: str, consumer: str) -> bool:
        """Return whether a consumer has joined. Only SQLite accepts unknown consumers."""
        known = self.run(self.model.consumers(name, group))
        return self.takes_clock or any(one.name == consumer for one in known)

    def sign(self, name: str, group: str, consumer: str) -> None:
        """Reset the idle time of the consumer, because the next step may or may not do so."""
        if self.takes_clock:
            self.same(lambda store: store.touch(name, group, consumer, []))

    def position(self, name: str, place: Place) -> tuple[str, str]:
        """Return a position for the model and the store."""
        if isinstance(place, str):
            return place, place
        if not self.ids[name]:
            return BEFORE_ALL, BEFORE_ALL
        number, after = place
        ids = list(self.ids[name].items())[number % len(self.ids[name])]
        ours, theirs = ids if after else (str(parse_id(id).before) for id in ids)
        return ours, theirs

    def pick(self, name: str, group: str, numbers: list[int]) -> tuple[list[str], list[str]]:
        """Return IDs for the model and the store."""
        ids = [one.id for one in self.run(self.model.pending(name, group, ALL, BEFORE_ALL))]
        ids += self.ids[name]
        picked = list(dict.fromkeys(ids[number] for number in numbers if number < len(ids)))
        return picked, [self.ids[name][id] for id in picked]

    def holder(self, name: str, group: str, consumer: str, numbers: list[int]) -> str:
        """Return the consumer, or the consumer that has the first of these events."""
        if consumer != HOLDER:
            return consumer
        ids, _ = self.pick(name, group, numbers[:1])
        waits = self.run(self.model.pending(name, group, ALL, BEFORE_ALL))
        held = [one.consumer for one in waits if one.consumer and one.id in ids]
        return held[0] if held else CONSUMERS[0]

    def assert_in_order(self, name: str) -> None:
        ids = [parse_id(id) for id in self.ids[name].values()]
        assert ids == sorted(set(ids))

    def assert_events(self, name: str, ours: list[StoredEvent], theirs: list[StoredEvent]) -> None:
        assert [event.id for event in theirs] == [self.ids[name][event.id] for event in ours]
        for expected, got in zip(ours, theirs, strict=True):
            assert (got.name, got.version) == (expected.name, expected.version)
            assert self.takes_clock is False or got.key == expected.key
            data, letter = json.loads(expected.body), json.loads(got.body)
            if name not in NAMES:
                data["id"] = self.ids[data["name"]][data["id"]]
                if not self.takes_clock:
                    for one in (*data["history"], *letter["history"]):
                        del one["at"]
                    # Redis has a message ID there, as Lightbus does.
                    data["idempotency_key"] = data["idempotency_key"] or letter["idempotency_key"]
            assert letter == data

    def handed_out(
        self, ask: Callable[[Store], Coroutine[Any, Any, list[Delivery]]], name: str
    ) -> None:
        expected, got = self.both(ask)
        assert [one.attempt for one in got] == [one.attempt for one in expected]
        self.assert_events(name, [one.event for one in expected], [one.event for one in got])

    def compare_history(self, name: str) -> None:
        expected, got = self.both(lambda store: store.history(name, BEFORE_ALL, None, ALL, 0))
        self.assert_events(name, expected, got)

    def compare(self, name: str, group: str) -> None:
        """Compare the state of a group."""
        expected, got = self.both(lambda store: store.groups(name))
        assert [one.name for one in got] == [one.name for one in expected]
        there = self.run(self.model.history(name, BEFORE_ALL, None, ALL, 0))
        ranks = [
            [parse_id(event.id) for event in there],
            [parse_id(self.ids[name][event.id]) for event in there],
        ]
        for ours, theirs in zip(expected, got, strict=True):
            same = ours._replace(last_id=theirs.last_id)
            if not self.takes_clock and theirs.lag is None:
                same = same._replace(lag=None)
            assert theirs == same
            lasts = [parse_id(one.last_id) for one in (ours, theirs)]
            # The lag counts existing events; deleted ones may have been before the position or not.
            assert bisect_right(ranks[1], lasts[1]) == bisect_right(ranks[0], lasts[0])
        waits = self.both(lambda store: store.pending(name, group, ALL, BEFORE_ALL))
        assert [one.id for one in waits[1]] == [self.ids[name][one.id] for one in waits[0]]
        for held, theirs_held in zip(*waits, strict=True):
            assert theirs_held.attempt == held.attempt
            assert self.is_due(theirs_held.due_in) == self.is_due(held.due_in)
            assert theirs_held.consumer == held.consumer
            if held.due_in is None:
                assert not self.takes_clock or theirs_held.idle == held.idle

    def compare_consumers(self, name: str, group: str) -> None:
        known = self.both(lambda store: store.consumers(name, group))
        assert [one.name for one in known[1]] == [one.name for one in known[0]]
        for consumer, theirs_consumer in zip(*known, strict=True):
            assert theirs_consumer.pending == consumer.pending
            assert not self.takes_clock or theirs_consumer.idle == consumer.idle

    def is_due(self, due_in: float | None) -> float | None:
        return due_in if self.takes_clock or not due_in else EVER


async def backend() -> AsyncioBackend:
    return AsyncioBackend()


@pytest.mark.slow
def test_sqlite_matches_the_model(tmp_path: Path) -> None:
    numbers = count(1)

    class Machine(StoreMachine):
        def prepare(self) -> None:
            self.path = tmp_path / f"{next(numbers)}.db"

        def new_store(self) -> Store:
            return SqliteStore(str(self.path), self.config)

    run_state_machine_as_test(Machine, settings=settings())


def test_redis_matches_the_model(redis_server: RedisServer) -> None:
    from parley._node.bus.redis.store import RedisStore

    class Machine(StoreMachine):
        takes_clock = False

        def prepare(self) -> None:
            redis_server.command("FLUSHALL")

        def new_store(self) -> Store:
            return RedisStore(redis_server.url, self.config)

    # Each step takes several round trips.
    examples = settings().max_examples // 2
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples))
