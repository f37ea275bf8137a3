"""The limit of one response from Redis, so that large events cannot fill the memory."""

import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.model import NewEvent
from parley._node.bus.redis.group_reader import FIRST, HANDFUL, MOST, REMEMBERED, EntrySizes
from parley._node.bus.redis.store import RedisStore
from tests.node.network import task_scope

NAME = "shop.ordered"


def test_unknown_entries_are_assumed_to_be_large() -> None:
    assert EntrySizes().count("a", 1_000) == HANDFUL // FIRST
    assert EntrySizes().count("a", 3) == 3


def test_size_of_the_last_entries_determines_the_count() -> None:
    sizes = EntrySizes()
    sizes.saw("a", [[b"x" * 50, b"y" * 50]] * 3)
    assert sizes.count("a", 10_000) == MOST
    sizes.saw("a", [[b"x"], [b"name", b"y" * (HANDFUL // 4)]])
    assert sizes.count("a", 1_000) == 3
    sizes.saw("a", [[b"x" * (2 * HANDFUL)]])
    assert sizes.count("a", 1_000) == 1
    for _ in range(4):  # Small entries again: twice as many each time.
        before = sizes.count("a", 1_000)
        sizes.saw("a", [[b"x"]])
        assert before <= sizes.count("a", 1_000) <= 2 * before + 1
    sizes.saw("b", [])
    assert sizes.count("b", 1_000) == HANDFUL // FIRST


def test_number_of_remembered_streams_is_bounded() -> None:
    sizes = EntrySizes()
    for number in range(REMEMBERED + 1):
        sizes.saw(str(number), [[b"x"]])
    assert sizes.count("0", 1_000) == HANDFUL // FIRST
    assert sizes.count("1", 1_000) == MOST


@pytest.mark.anyio
async def test_answers_are_bounded_and_complete(redis_url: str, anyio_backend: str) -> None:
    store = RedisStore(redis_url, BusConfig())
    body = f'{{"text":"{"x" * (HANDFUL // 8)}"}}'
    data = {"text": "x" * (HANDFUL // 8)}
    async with task_scope() as loop:
        await store.open(loop)
        try:
            for _ in range(5):
                await store.publish([NewEvent(NAME, data, body)] * 20, durable=True)
            await store.join(NAME, "g", "c", BEFORE_ALL)
            ids: list[str] = []
            sizes: list[int] = []
            while found := await store.read(NAME, "g", "c", 1_000, 0.0):
                ids += [delivery.event.id for delivery in found]
                sizes.append(len(found))
            assert sizes[0] == HANDFUL // FIRST
            assert max(sizes[1:]) < 8
            seen: list[str] = []
            while shown := await store.history(NAME, seen[-1] if seen else BEFORE_ALL, None, 99, 0):
                seen += [event.id for event in shown]
                assert len(shown) < 8
            assert ids == seen
            assert len(ids) == 100
            await store.release(NAME, "g", "c", ids)
            again = await store.claim(NAME, "g", "c", 1_000, 60.0)
            assert 0 < len(again) < 8
        finally:
            await store.aclose()
