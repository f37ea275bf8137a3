"""The bus in an application: publishing, lifecycle, inspection and maintenance."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley._node.bus.address import open_bus
from parley._node.bus.bus import LARGEST_VERSION
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import (
    BusClosedError,
    BusDamagedError,
    BusError,
    BusUnavailableError,
    InvalidEventError,
    SchemaViolationError,
)
from parley._node.bus.event import BusEvent
from parley._node.bus.model import NewEvent
from parley._node.errors import AddressError, ConfigError
from tests.node.bus.buses import GROUP, NAME, FaultyStore, a_bus, attempts, fail, publish
from tests.node.bus.model_store import ModelStore
from tests.node.network import eventually, started

pytestmark = pytest.mark.anyio


# Publishing.


async def test_publishing(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        before = datetime.now(UTC) - timedelta(seconds=1)
        first = await bus.publish(NAME, {"n": 0}, idempotency_key="k", version=2)
        assert await bus.publish(NAME, {"n": 0}, idempotency_key="k") == first
        rest = await bus.publish_many(NAME, ({"n": n} for n in (1, 2)), durable=False)
        assert await bus.publish_many(NAME, []) == []
        assert bus.counters.published == 3
        found = [event async for event in bus.history(NAME)]
        assert [event.id for event in found] == [first, *rest]
        event = found[0]
        assert (event.name, event.data, event.version) == (NAME, {"n": 0}, 2)
        assert (event.idempotency_key, event.attempt, event.group) == ("k", 0, None)
        assert before < event.published_at < datetime.now(UTC) + timedelta(seconds=1)
        assert len(store.asked("publish")) == 3


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("nodot", {}, {}),
        (NAME, {"n": float("nan")}, {}),
        (NAME, ["no mapping"], {}),
        (NAME, {"long": "x" * 100}, {}),
        (NAME, {}, {"idempotency_key": "with space"}),
        (NAME, {}, {"version": 0}),
        (NAME, {}, {"version": LARGEST_VERSION + 1}),
        (NAME, {}, {"version": True}),
    ],
)
async def test_invalid_events(
    anyio_backend: str, name: str, data: Any, options: dict[str, Any]
) -> None:
    async with a_bus(max_event_bytes=64) as (bus, store):
        with pytest.raises(InvalidEventError):
            await bus.publish(name, data, **options)
        assert store.asked("publish") == []


async def test_retrying_publish_needs_a_key(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        gone = BusUnavailableError("gone")
        store.faults["publish"] = [gone]
        with pytest.raises(BusUnavailableError):
            await bus.publish(NAME, {})
        store.late_faults["publish"] = [gone]
        await bus.publish(NAME, {}, idempotency_key="k")
        assert bus.counters.published == 0  # The first attempt had stored it.
        assert len([event async for event in bus.history(NAME)]) == 1
        store.faults["publish"] = [gone] * 9
        with pytest.raises(BusUnavailableError):
            await bus.publish(NAME, {}, idempotency_key="k", timeout=0.01)
        store.faults["publish"] = [BusDamagedError("torn")]
        with pytest.raises(BusDamagedError):
            await bus.publish(NAME, {}, idempotency_key="k")
        with pytest.raises(ConfigError):
            await bus.publish(NAME, {}, idempotency_key="k", timeout=-1)


async def test_schemas_apply_on_both_sides(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        await bus.publish(NAME, {"n": "text"})
        bus.schema("auth.*", {"properties": {"n": {"type": "integer"}}})
        with pytest.raises(SchemaViolationError, match=r"\$\.n"):
            await bus.publish(NAME, {"n": "text"})
        await bus.publish(NAME, {"n": 1})
        assert await attempts_of_next(bus) == (1, 1)
        (letter,) = await bus.dead_letters(NAME)
        assert "$.n" in letter.history[0].error
        assert letter.data == {"n": "text"}


async def attempts_of_next(bus: Any) -> tuple[int, int]:
    """Return `n` and the attempt of the next event, and acknowledge it."""
    async with bus.consume(NAME, GROUP) as events:
        event = await anext(events)
        return event.data["n"], event.attempt


async def test_data_that_cannot_be_read(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        await store.publish([NewEvent(NAME, {}, "no json")], durable=True)
        await store.publish([NewEvent(NAME + ".dead", {}, "[]")], durable=True)
        await publish(bus, 1)
        assert await attempts_of_next(bus) == (0, 1)
        by_hand, letter = await bus.dead_letters(NAME)
        assert (letter.data, letter.body, letter.attempts) == (None, "no json", 1)
        assert (by_hand.data, by_hand.body, by_hand.group, by_hand.event_id) == (None, "[]", "", "")
        with pytest.raises(InvalidEventError):
            _ = [event.data async for event in bus.history(NAME)]
        # A dead letter stays on its stream as well.
        async with bus.consume(NAME + ".dead", GROUP) as events:
            assert (await anext(events)).id == letter.id
        assert await bus.replay_dead(NAME, [by_hand.id]) == []
        assert await bus.replay_dead(NAME, [letter.id]) == [letter.id]


# Lifecycle.


async def test_first_call_opens_the_bus_once(anyio_backend: str) -> None:
    from parley._node.bus.bus import Bus
    from tests.node.network import task_scope

    async with task_scope() as backend, anyio.create_task_group() as tasks:
        store = FaultyStore(ModelStore(BusConfig()))
        store.faults["open"] = [BusUnavailableError("gone"), OSError("?")]
        bus = Bus(store, BusConfig(), loop=lambda: backend)  # type: ignore[arg-type] # a store for this test
        for error in (BusUnavailableError, BusError):
            with pytest.raises(error):
                await bus.publish(NAME, {})
        with anyio.CancelScope() as scope:
            scope.cancel()
            await bus.publish(NAME, {})
        acks = [await started(tasks, lambda: bus.publish(NAME, {})) for _ in range(3)]
        await eventually(lambda: all(acks))
        assert len(store.asked("open")) == 3
        await bus.aclose()
        await bus.aclose()
        for _ in range(2):
            with pytest.raises(BusClosedError):
                await bus.publish(NAME, {})
        unused = Bus(store, BusConfig(), loop=lambda: backend)  # type: ignore[arg-type]  # as above
        await unused.aclose()
        assert len(store.asked("open")) == 3


async def test_without_a_node(anyio_backend: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db?service=shop"
    with pytest.raises(AddressError):
        async with open_bus("nothing://x"):
            pass
    async with open_bus(url) as bus:
        await publish(bus, 3)
        got: list[int] = []

        @bus.handler(NAME, GROUP)
        async def handle(event: BusEvent) -> None:
            got.append(event.data["n"])

        await eventually(lambda: len(got) == 3)
    async with open_bus(url, BusConfig(service="other")) as bus:
        (group,) = await bus.groups(NAME)
        assert (group.name, group.pending, group.lag) == ("shop-mailer", 0, 0)
        assert await bus.lag(NAME, GROUP) == 0


async def test_left_by_an_exception(anyio_backend: str, tmp_path: Path) -> None:
    """Handlers are cancelled, and their events are redelivered."""
    url = f"sqlite:///{tmp_path}/bus.db"

    async def run() -> None:
        async with open_bus(url) as bus:
            begun = anyio.Event()

            @bus.handler(NAME, GROUP)
            async def handle(event: BusEvent) -> None:
                begun.set()
                await anyio.sleep_forever()

            await publish(bus, 2)
            await begun.wait()
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await run()
    async with open_bus(url) as bus:
        assert await attempts(bus) == [(0, 2), (1, 1)]


# Inspection and maintenance.


async def test_history(anyio_backend: str) -> None:
    async with a_bus() as (bus, _), anyio.create_task_group() as tasks:
        ids = await publish(bus, 250)
        found = [event.id async for event in bus.history(NAME)]
        assert found == ids
        some = bus.history(NAME, start=ids[10], end=ids[12])
        assert [event.data["n"] async for event in some] == [10, 11, 12]
        later = datetime.now(UTC) + timedelta(hours=1)
        assert [event async for event in bus.history(NAME, start=later)] == []
        assert len([event async for event in bus.history(NAME, end=later)]) == 250
        following = bus.history(NAME, start="new", follow=True)
        outcome = await started(tasks, lambda: anext(following))
        await publish(bus, 1)
        await eventually(lambda: bool(outcome))
        assert isinstance(outcome[0], BusEvent)
        with pytest.raises(InvalidEventError):
            bus.history("nodot")


async def test_inspection(anyio_backend: str) -> None:
    async with a_bus(service="shop") as (bus, _):
        ids = await publish(bus, 3)
        with pytest.raises(BusError, match="no such group"):
            await bus.lag(NAME, GROUP)
        async with bus.consume(NAME, GROUP, batch=1) as events:
            await anext(events)
            assert await bus.lag(NAME, GROUP) == 2
            (pending,) = await bus.pending(NAME, GROUP)
            assert (pending.id, pending.consumer) == (ids[0], "me")
            assert await bus.pending(NAME, GROUP, after=ids[0]) == []
        assert [one.name for one in await bus.consumers(NAME, GROUP)] == ["me"]
        assert [one.name for one in await bus.groups()] == ["shop-mailer"]
        assert await bus.groups("auth.*") == []
        assert [(one.name, one.length) for one in await bus.streams()] == [(NAME, 3)]
        await bus.replay(NAME, GROUP, "first")
        assert await bus.lag(NAME, GROUP) == 3
        assert await bus.remove_group(NAME, GROUP)
        assert not await bus.remove_group(NAME, GROUP)


async def test_trimming(anyio_backend: str) -> None:
    now = 1_000_000.0
    async with a_bus(clock=lambda: now) as (bus, _):
        ids = await publish(bus, 10)
        assert await bus.trim(NAME, max_length=8) == 2
        assert await bus.trim(NAME, before=ids[4]) == 2
        now += 60
        ids += await publish(bus, 1)
        assert await bus.trim(NAME, max_age=120) == 0
        assert await bus.trim(NAME, max_age=30, before=ids[0]) == 6
        assert await bus.trim(NAME, before=datetime.fromtimestamp(now + 1, UTC)) == 1
        assert await bus.trim(NAME, max_bytes=0) == 0
        for wrong in ({"max_length": -1}, {"max_bytes": -1}, {"max_age": -1.0}):
            with pytest.raises(ConfigError):
                await bus.trim(NAME, **wrong)


async def test_dead_letters(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        ids = await publish(bus, 4)
        for _ in range(4):
            with pytest.raises(ValueError, match="bad"):
                await fail(bus, ValueError("bad"), max_attempts=1)
        letters = await bus.dead_letters(NAME)
        assert [letter.event_id for letter in letters] == ids
        assert [one.id for one in await bus.dead_letters(NAME, count=1, after=letters[0].id)] == [
            letters[1].id
        ]
        assert (letters[0].name, letters[0].data, letters[0].group) == (NAME, {"n": 0}, GROUP)
        # To the group in which it failed, or as a new event for all if the stream no longer has it.
        assert await bus.replay_dead(NAME, group="another") == []
        assert await bus.replay_dead(NAME, [letters[1].id]) == [letters[1].id]
        await bus.trim(NAME, before=ids[1])
        store.faults["drop"] = [BusUnavailableError("gone")]
        with pytest.raises(BusUnavailableError):  # Interrupted and repeated: published once.
            await bus.replay_dead(NAME, [letters[0].id], group=GROUP)
        assert await bus.replay_dead(NAME, [letters[0].id], group=GROUP) == [letters[0].id]
        assert await attempts(bus) == [(1, 1), (0, 1)]
        assert await bus.drop_dead(NAME, [letters[2].id, letters[0].id]) == 1
        assert await bus.replay_dead(NAME) == [letters[3].id]
        assert await bus.replay_dead(NAME) == []
        with pytest.raises(ValueError, match="bad"):
            await fail(bus, ValueError("bad"), max_attempts=1)
        assert await bus.drop_dead(NAME) == 1
        for wrong in ("1-0", ["no id"]):
            with pytest.raises(InvalidEventError):
                await bus.drop_dead(NAME, wrong)


async def test_large_dead_letters_are_fetched_in_small_pages(
    anyio_backend: str, tmp_path: Path
) -> None:
    config = BusConfig(max_length=None)
    async with open_bus(f"sqlite:///{tmp_path}/bus.db", config) as bus:
        for _ in range(3):
            await bus.publish(f"{NAME}.dead", {"body": "x" * (2**20 - 100)})
        assert len(await bus.dead_letters(NAME)) == 3
        assert len(await bus.dead_letters(NAME, count=2)) == 2
        assert [event async for event in bus.history(f"{NAME}.dead")][2:]
