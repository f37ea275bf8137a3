"""Other programs on the same Redis, and names that a peer may choose there.

Neither can stop a group or let a group read another's events (docs/threat-model.md, B2, B3, B8).
"""

import anyio
import pytest

from parley._node.bus.address import open_bus
from parley._node.bus.config import BusConfig
from parley._node.bus.data import decode_body
from parley._node.bus.errors import BusDamagedError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.redis import group_reader as group_notes
from parley._node.bus.redis import store as store_module
from parley._node.bus.redis.format import LIGHTBUS
from parley._node.bus.redis.group_reader import GroupStates
from parley._node.bus.redis.scripts import idempotency_key, keys_of
from parley._node.bus.redis.store import RedisStore
from parley._node.errors import ConfigError
from tests.node.bus.redis.streams import ALL, DEAD, KEY, C, G, Redis, S, event, ids, numbers
from tests.node.bus.stores import opened
from tests.redis_server import PATIENCE

pytestmark = pytest.mark.anyio


async def test_groups_and_consumers_can_have_any_name(store: RedisStore, redis: Redis) -> None:
    await store.publish([event(n) for n in range(3)], durable=True)
    foreign = r"""
    redis.call('XGROUP', 'CREATE', KEYS[1], '\255', '0')
    redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0')
    redis.call('XREADGROUP', 'GROUP', ARGV[1], '\254', 'COUNT', 1, 'STREAMS', KEYS[1], '>')
    """
    redis("EVAL", foreign, 1, KEY, G)
    await store.join(S, G, C, BEFORE_ALL)
    assert numbers(await store.read(S, G, C, 1, 0)) == [(1, 1)]
    assert [one.name for one in await store.groups(S)] == [r"\xff", G]
    assert [one.name for one in await store.consumers(S, G)] == [r"\xfe", C]
    first, _ = await store.pending(S, G, 5, BEFORE_ALL)
    assert first.consumer == r"\xfe"
    (taken,) = await store.claim(S, G, C, 1, 0)
    assert await store.bury(S, G, C, taken.event.id, "no") is not None
    (letter,) = await store.history(DEAD, BEFORE_ALL, None, ALL, 0)
    assert [one["consumer"] for one in decode_body(letter.body)["history"]] == ["\ufffd", C]
    await store.rewind(S, G, BEFORE_ALL)
    assert await store.drop(S, [taken.event.id]) == 1


@pytest.mark.parametrize("past", ["no JSON", "7", "[" * 100_000])
async def test_foreign_history_is_replaced(store: RedisStore, redis: Redis, past: str) -> None:
    await store.publish([event()], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    (id,) = ids(await store.read(S, G, C, 1, 0))
    await store.nack(S, G, C, id, 0, "no")
    for consumer in (
        "two",
        "three",
    ):  # One consumer receives the due event, the other the idle one.
        redis("HSET", keys_of(KEY, G).past, id, past)
        assert len(await store.claim(S, G, consumer, 1, 0)) == 1
    redis("HSET", keys_of(KEY, G).past, id, past)
    assert await store.nack(S, G, "three", id, 0, "no")
    assert len(await store.claim(S, G, C, 1, 60)) == 1


@pytest.mark.parametrize("past", ["no JSON", "[1]", '[{"attempt": 1}]', "[" * 100_000])
async def test_foreign_history_does_not_prevent_a_dead_letter(
    store: RedisStore, redis: Redis, past: str
) -> None:
    await store.publish([event()], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    await store.read(S, G, C, 1, 0)
    ((id, *_),) = await store.pending(S, G, 1, BEFORE_ALL)
    await store.nack(S, G, C, id, 0, "no")
    await store.claim(S, G, C, 1, 60)
    redis("HSET", keys_of(KEY, G).past, id, past)
    assert await store.bury(S, G, C, id, "last") is not None
    (letter,) = await store.history(DEAD, BEFORE_ALL, None, ALL, 0)
    assert [one["error"] for one in decode_body(letter.body)["history"]] == ["last"]


async def test_event_acknowledged_by_another_program_leaves_no_history(
    store: RedisStore, redis: Redis
) -> None:
    """Histories must not grow without limit: only those of pending events stay."""
    await store.publish([event(n) for n in range(4)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    found = ids(await store.read(S, G, C, 4, 0))
    past = keys_of(KEY, G).past
    for id in found:
        await store.nack(S, G, C, id, 0, "no")
    assert redis("XACK", KEY, G, *found[:3]) == 3
    redis("HSET", past, "no id", "[]", "1-99999999999999999999", "[]")
    assert numbers(await store.claim(S, G, C, 9, 60)) == [(3, 2)]
    assert redis("HKEYS", past) == found[3:]


# The format in Lightbus's documentation: all values are JSON, including the metadata.
DOCUMENTED_ENTRY = (
    *(":id", '"q"', ":api_name", '"auth"', ":event_name", '"user_registered"', ":version", "1"),
    *("username", '"ada"'),
)


@pytest.mark.parametrize(
    ("form", "key"),
    [("documented", S), ("documented-per-api", "auth.*"), ("per-api", "auth.*:stream")],
)
async def test_events_in_the_documented_form_are_consumed(
    redis_url: str, redis: Redis, anyio_backend: str, form: str, key: str
) -> None:
    with anyio.fail_after(PATIENCE):
        async with open_bus(f"{redis_url}?format={form}") as bus:
            redis("XADD", key, "*", *DOCUMENTED_ENTRY)
            await bus.publish(S, {"username": "zoë"})
            async with bus.consume(S, group=G) as events:
                first, second = await anext(events), await anext(events)
            assert (first.data, first.idempotency_key, first.version) == (
                {"username": "ada"},
                "q",
                1,
            )
            assert second.data == {"username": "zoë"}
            if form != "per-api":
                (_, (_, written)) = redis("XRANGE", key, "-", "+")
                assert written[2:] == [*DOCUMENTED_ENTRY[2:-1], '"zo\\u00eb"']


@pytest.mark.parametrize(("form", "key"), [("per-event", KEY), ("per-api", "auth.*:stream")])
async def test_unreadable_entry_becomes_a_dead_letter_and_is_logged(
    redis_url: str,
    redis: Redis,
    anyio_backend: str,
    form: str,
    key: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with anyio.fail_after(PATIENCE):
        async with open_bus(f"{redis_url}?format={form}") as bus:
            for fields in ("", ""), ("some", "thing"):
                redis("XADD", key, "*", *fields)
            id = redis("XADD", key, "*", *DOCUMENTED_ENTRY[2:])
            await bus.publish(S, {"n": 1})
            async with bus.consume(S, group=G) as events:
                assert (await anext(events)).data == {"n": 1}
            letters = await bus.dead_letters(S)
            assert [letter.body.partition(", ")[2] for letter in letters] == [
                "without its metadata: some=thing",
                'without its metadata: :api_name="auth", :event_name="user_registered", '
                ':version=1, username="ada"',
            ]
            assert letters[1].event_id == id
            assert f"{S} {id} became a dead letter" in caplog.text


async def test_key_of_another_type_stores_nothing(store: RedisStore, redis: Redis) -> None:
    redis("RPUSH", idempotency_key(S, "k2"), "x")
    with pytest.raises(BusDamagedError):
        await store.publish([event(1, key="k1"), event(2, key="k2")], durable=True)
    assert redis("EXISTS", KEY) == redis("EXISTS", idempotency_key(S, "k1")) == 0


async def test_reader_of_one_event_gets_no_other_event_of_the_api(
    redis_url: str, anyio_backend: str
) -> None:
    """This also applies to a consumer that never joined, which a peer need not do."""
    async with opened(RedisStore(redis_url, BusConfig(formats={"*": LIGHTBUS}))) as store:
        await store.join("auth.secret", G, "ours", BEFORE_ALL)
        await store.publish([event(n, "auth.secret") for n in range(2)], durable=True)
        taken = ids(await store.read("auth.secret", G, "ours", 1, 0))
        await store.release("auth.secret", G, "ours", taken)
        with pytest.raises(ConfigError, match="another group"):
            await store.read("auth.public", G, "peer", 5, 0)
        with pytest.raises(ConfigError, match="another group"):
            await store.claim("auth.public", G, "peer", 5, 0)
        with pytest.raises(ConfigError, match="another group"):
            await store.recover_pending("auth.public", G, "peer", 5)
        assert len(await store.read("auth.secret", G, "ours", 5, 0)) == 1
        assert len(await store.claim("auth.secret", G, "ours", 5, 60)) == 1


def test_group_state_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_notes, "MOST_GROUPS", 2)
    monkeypatch.setattr(group_notes, "MOST_PLACES", 2)
    known = GroupStates()
    first = known.of("a.b", "a.b:stream", "1")
    known.of("a.b", "a.b:stream", "2")
    assert known.of("a.b", "a.b:stream", "1") is first
    known.of("a.b", "a.b:stream", "3")
    assert known.of("a.b", "a.b:stream", "1") is first
    assert len(known._all) == 2
    for consumer in ("c", "d", "c", "e"):
        first.set_place(consumer, "1-1")
    assert list(first.places) == ["c", "e"]


async def test_stream_state_is_bounded(
    redis_url: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MOST_CHECKED", 2)
    async with opened(RedisStore(redis_url, BusConfig(max_age=60))) as store:
        await store.publish([event(n, f"a.b{n}") for n in range(9)], durable=True)
        assert len(store._unchecked) <= 3


def test_two_groups_never_share_a_key() -> None:
    words = ["g", "a.b:g", ":", "stream:g", "due:a.b:stream:g", "{g}", "*"]
    names = ["a.b:stream", "a.b.c:stream", "a.*:stream", "stream.g:stream"]
    keys = [key for name in names for word in words for key in keys_of(name, word).own]
    keys += [
        idempotency_key(name.removesuffix(":stream"), word) for name in names for word in words
    ]
    assert len(set(keys)) == len(keys)
