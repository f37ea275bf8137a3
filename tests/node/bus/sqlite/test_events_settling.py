"""Settling delivered events, and which consumer may do so."""

import json
from pathlib import Path

import pytest

from parley._node.bus.dead_letters import LONGEST_HISTORY
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.model import NewEvent
from parley._node.bus.sqlite import events as deliveries
from tests.node.bus.sqlite.stage import GROUP, START, STREAM, Clock, new, stage

pytestmark = pytest.mark.anyio


async def test_acknowledged_event_is_no_longer_pending(anyio_backend: str, tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path, clock) as on:
        ids = await on.publish(4)
        await on.join()
        await on.read(3)
        await on.store.nack(STREAM, GROUP, "c", ids[1], 5, "no")
        assert await on.store.ack(STREAM, GROUP, [*ids[:2], ids[3], "1-0", f"{2**64 - 1}-0"]) == 2
        assert await on.store.ack(STREAM, GROUP, ids[:2]) == 0
        assert await on.store.ack(STREAM, "no such group", ids) == 0
        with pytest.raises(InvalidEventError):
            await on.store.ack(STREAM, GROUP, ["x"])
    async with stage(tmp_path, clock) as on:
        assert [one.id for one in await on.store.pending(STREAM, GROUP, 9, "0-0")] == ids[2:3]
        assert (await on.store.groups(STREAM))[0].pending == 1


async def test_only_the_current_consumer_can_release(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (id,) = await on.publish()
        await on.join()
        await on.join("d")
        await on.read()
        store = on.store
        for consumer in ("d", "nobody"):
            assert not await store.nack(STREAM, GROUP, consumer, id, 0, "no")
            assert await store.bury(STREAM, GROUP, consumer, id, "no") is None
            await store.release(STREAM, GROUP, consumer, [id])
        assert not await store.nack(STREAM, GROUP, "c", f"{2**64 - 1}-0", 0, "no")
        assert (await store.pending(STREAM, GROUP, 9, "0-0"))[0].due_in is None
        assert await store.nack(STREAM, GROUP, "c", id, 9, "no")
        assert not await store.nack(STREAM, GROUP, "c", id, 0, "no")
        assert await store.bury(STREAM, GROUP, "c", id, "no") is None
        await store.release(STREAM, GROUP, "c", [id])
        await store.touch(STREAM, GROUP, "c", [id])
        assert (await store.pending(STREAM, GROUP, 9, "0-0"))[0].due_in == 9


async def test_dead_letter_has_the_outcome_of_each_attempt(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        (published,) = await on.store.publish([new(1, "k")], durable=True)
        id = published.id
        await on.join()
        await on.read()
        await on.store.nack(STREAM, GROUP, "c", id, 0, "first\nline")
        await on.claim("d")
        on.clock.now += 60
        await on.claim("e")
        letter = await on.store.bury(STREAM, GROUP, "e", id, "given up")
        (event,) = await on.stored(f"{STREAM}.dead")
        assert event.id == letter
        assert json.loads(event.body) == {
            "id": id,
            "name": STREAM,
            "idempotency_key": "k",
            "version": 1,
            "data": json.loads(new(1).body),
            "group": GROUP,
            "attempts": 3,
            "history": [
                {"attempt": 1, "consumer": "c", "at": START, "error": "first line"},
                {"attempt": 2, "consumer": "d", "at": START + 60, "error": "not acknowledged"},
                {"attempt": 3, "consumer": "e", "at": START + 60, "error": "given up"},
            ],
        }
        (group,) = await on.store.groups(STREAM)
        assert (group.pending, group.dead_lettered, group.redelivered) == (0, 1, 2)
        assert await on.store.bury(STREAM, GROUP, "e", id, "again") is None


@pytest.mark.parametrize("body", ["{no", '{"a": NaN}', '{"a": "\\ud800"}'])
async def test_invalid_json_is_buried_unchanged(
    anyio_backend: str, tmp_path: Path, body: str
) -> None:
    async with stage(tmp_path) as on:
        (published,) = await on.store.publish([NewEvent(STREAM, {}, body)], durable=True)
        await on.join()
        await on.read()
        await on.store.bury(STREAM, GROUP, "c", published.id, "no JSON")
        (letter,) = await on.letters()
        assert (letter["data"], letter["body"]) == (None, body)


async def test_deeply_nested_event_can_become_a_dead_letter(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_level_too_many(value: dict[str, object]) -> str:
        if value["data"] is not None:
            raise InvalidEventError("the data is not JSON: maximum recursion depth exceeded")
        return json.dumps(value)

    monkeypatch.setattr(deliveries, "encode_value", one_level_too_many)
    async with stage(tmp_path) as on:
        (id,) = await on.publish()
        await on.join()
        await on.read()
        assert await on.store.bury(STREAM, GROUP, "c", id, "no") is not None
        (letter,) = await on.letters()
        assert (letter["data"], letter["body"]) == (None, new(0).body)


async def test_a_history_in_the_store_is_bounded(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (id,) = await on.publish()
        await on.join()
        await on.read()
        for attempt in range(1, LONGEST_HISTORY + 5):
            await on.store.nack(STREAM, GROUP, "c", id, 0, f"{attempt} " + "x" * 1_000)
            assert await on.claim("c") == {id: attempt + 1}
        await on.store.bury(STREAM, GROUP, "c", id, "no")
        (letter,) = await on.letters()
        assert letter["attempts"] == LONGEST_HISTORY + 5
        assert len(letter["history"]) == LONGEST_HISTORY
        assert max(len(entry["error"]) for entry in letter["history"]) == 500
