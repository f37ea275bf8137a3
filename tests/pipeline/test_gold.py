"""The gold tables: their counts, without double counting."""

from datetime import timedelta

import pyarrow as pa
import pytest

from parley._pipeline.gold.build import gold_tables
from parley._pipeline.gold.finding_texts import FAULT, KINDS, NOTICE
from parley._pipeline.gold.tables import calls
from parley._pipeline.summary.pairing import LAST_CODE
from tests.pipeline.silver_frames import (
    CHECK_KEY,
    START,
    Row,
    Talk,
    chosen,
    events_of,
    statement,
    summary,
    tunnel,
    values,
)

Gold = dict[str, pa.Table]


def made(*talks: Talk, found: list[Row] | None = None, tunnels: list[Row] | None = None) -> Gold:
    """The tables of these conversations."""
    whole = summary(*talks, found=found or [], tunnels=tunnels or [])
    return gold_tables(whole, lambda _: events_of(*talks), CHECK_KEY)


def conversation() -> list[Talk]:
    """`a` calls `b` and publishes to it; `b` publishes to `a`, to which it is too much."""
    first = Talk("first")
    first.call("a", "add", 0, 5)
    first.call("a", "add", 10, 7, code=16)  # the same async id once more
    first.call("a", "list", 20, 30, async_id=2, chunks=3)
    first.say("a", "call", 60, topic="add", async_id=3)  # never answered
    first.say("a", "call", 60, topic="add", async_id=0)  # wants no answer
    first.say("b", "call", 60, topic="add", async_id=1)  # b's ids are its own
    asked = {"type": "call", "topic": "add", "category": 3}
    first.batch("a", 61, asked | {"async_id": 5}, asked | {"async_id": 6}, asked)
    done = {"type": "result", "category": 3}
    first.batch("b", 63, done | {"async_id": 6, "code": 0}, done | {"async_id": 5, "code": 17})
    first.say("a", "subscribe", 70, topic="news", async_id=4)
    first.say("b", "open", 71, topic="news", stream=2)
    first.say("b", "result", 72, async_id=4, code=0, opens=2)
    first.say("b", "notify", 73, stream=2, topic="news", async_id=0)
    first.say("b", "notes", 74, stream=2, topic="news", async_id=0, notes=5)
    first.say("b", "reset", 75, stream=0, opens=2, code=33)
    first.say("b", "open", 76, stream=4, topic="a file")  # no topic
    first.about("a", "key-update", 80, direction="sent", epoch=1)
    first.about("a", "key-update", 81, direction="received", epoch=1, generation=1)
    first.about("b", "parted", 85, text="no answer")
    first.about("a", "resumed", 86, resumption=1)
    first.about("b", "resumed", 87, resumption=2)
    first.close("b", 90)
    second = Talk("second")  # b's journal has no record of it.
    second.call("a", "add", 120_000, 100)
    second.lose("b")
    return [first, second]


@pytest.fixture(scope="module")
def gold() -> Gold:
    """The tables of that conversation."""
    found: list[Row] = [
        {"kind": "gap", "journal": "a", "count": 2},
        {"kind": "no-such-kind", "journal": "a", "count": 1},
    ]
    talks = conversation()
    talks[1].row("a", "a", 1)["status"] = "unsealed"
    joined = [row for made in tunnelled() for row in made.values()]
    return made(*talks, found=found, tunnels=joined)


def tunnelled() -> list[dict[str, Row]]:
    """Tunnels through `a` and `b`, and others that keep a journal or not."""
    far = tunnel("far", "s", "a", "b", "c", "t")
    del far["c"]
    lone = tunnel("lone", "s", "a", "b", "c", "t")
    again = tunnel("again", "a", "b", account="phone", forward=2**63 - 1)
    return [
        far,
        {"c": lone["c"]},
        again,
        {"a": again["a"] | {"began": START, "back": 1, "segment": "another"}},
    ]


def test_traffic_and_graph(gold: Gold) -> None:
    table = gold["traffic"]
    news = chosen(table, topic="news")
    assert values(news, "node", "peer", "direction", "events", "notes", "wire_bytes") == [
        ("a", "b", "received", 3, 6, 300),
        ("a", "b", "sent", 1, 0, 100),
        ("b", "a", "received", 1, 0, 100),
        ("b", "a", "sent", 3, 6, 300),
    ]
    minutes = chosen(table, topic="add", node="a")
    assert {row["minute"].minute for row in minutes} == {0, 2}
    assert {row["date"] for row in minutes} == {START.date()}

    assert values(
        chosen(gold["graph"]), "sender", "receiver", "sessions", "events", "wire_bytes"
    ) == [("a", "b", 2, 12, 1_000), ("b", "a", 2, 19, 1_800)]


def test_calls(gold: Gold) -> None:
    table = gold["calls"]
    columns = ("caller", "callee", "seen_by", "calls", "answered", "unanswered", "errors")
    assert values(chosen(table, scope="pair", topic="add"), *columns) == [
        ("a", "b", "callee", 5, 4, 1, 2),
        ("a", "b", "caller", 6, 5, 1, 2),
        ("b", "a", "callee", 1, 0, 1, 0),
        ("b", "a", "caller", 1, 0, 1, 0),
    ]
    timed = ("seen_by", "parts", "p50_us", "p95_us", "p99_us", "max_us")
    assert values(chosen(table, scope="topic", topic="list"), *timed) == [
        ("callee", 3, 30_000, 30_000, 30_000, 30_000),
        ("caller", 3, 30_000, 30_000, 30_000, 30_000),
    ]
    [row] = chosen(table, scope="topic", topic="add", seen_by="caller")
    assert (row["calls"], row["p50_us"], row["max_us"]) == (7, 5_000, 100_000)
    assert row["error_codes"] == {16: 1, 17: 1}


def test_a_name_and_its_namespace_are_two_things() -> None:
    talk = Talk("named")
    for number, (namespace, name) in enumerate([("a.b", "c"), ("a", "b.c"), (None, "a.b.c")]):
        talk.say("a", "emit", number, topic=name, namespace=namespace, async_id=1, category=4)
        talk.say("b", "end", number + 1, async_id=1, category=4)
    talk.say("b", "data", 9, stream=2, label="news")
    talk.say("b", "notify", 9, stream=4, label="topic:news", topic="news")
    talk.say("b", "notes", 9, stream=4, label="topic:news", topic="news", items=0)
    tables = made(talk)
    asked = chosen(tables["calls"], scope="topic", seen_by="callee")
    assert values(asked, "topic", "namespace", "calls", "answered") == [
        ("a.b.c", None, 1, 1),
        ("b.c", "a", 1, 1),
        ("c", "a.b", 1, 1),
    ]
    carried = [row for row in chosen(tables["traffic"], node="b") if row["label"]]
    assert values(carried, "label", "topic", "events", "notes") == [
        ("news", None, 1, 0),
        ("topic:news", "news", 2, 1),
    ]
    assert values(chosen(tables["topics"]), "topic", "notes") == [("news", 1)]


def test_an_answer_far_away_and_one_that_is_not_there() -> None:
    talk = Talk("far")
    for number in range(4):
        # What a peer chooses as codes has a bound.
        talk.call("a", "add", 10 * number, number + 1, code=(0, 0, 0, LAST_CODE + 9)[number])
    for row in talk.events:
        # Places 1 to 4 of each: the second answer is in the block of the fourth request.
        far = row["place"] > 1 and not (row["type"] == "call" and row["place"] == 2)
        row["offset"] += 2**24 if far else 0
    talk.drop("a", "b", 3)
    table = chosen(calls(summary(talk)), scope="pair", seen_by="caller")
    assert values(table, "calls", "answered", "unanswered", "p50_us", "max_us", "error_codes") == [
        (4, 3, 1, 2_000, 4_000, {LAST_CODE: 1})
    ]


def test_topics_and_sessions(gold: Gold) -> None:
    counted = ("topic", "publisher", "subscriptions", "subscribers", "notes", "payload_bytes")
    assert values(chosen(gold["topics"]), *counted, "slow_resets") == [
        ("news", "b", 1, 1, 6, 300, 1)
    ]

    columns = (
        "session", "initiator", "responder", "journals", "key_updates", "rekeys", "duration_us",
        "initiator_code", "initiator_remote", "responder_remote", "events", "wire_bytes",
        "resumptions",
    )  # fmt: skip
    assert values(chosen(gold["sessions"]), *columns) == [
        ("first", "a", "b", 2, 2, 1, 90_000, 0, True, False, 27, 2_400, 2),
        ("second", "a", "b", 1, 0, 0, None, None, None, None, 4, 400, 0),
    ]


def test_tunnels(gold: Gold) -> None:
    columns = ("trace", "path", "length", "hops", "tunnels", "duration_us", "forward", "back")
    assert values(chosen(gold["tunnels"]), *columns) == [
        ("again", ["phone", "a", "b"], 2, 1, 2, 2_000_000, 2**63 - 1, 100_001),
        ("far", ["s", "a", "b", "c", None], 5, 2, 1, 1_000_000, 1_000, 100_000),
        ("lone", [None, None, "b", "c", "t"], 5, 1, 1, 1_000_000, 1_000, 100_000),
    ]


def test_statements() -> None:
    before, after = Talk("before", "a", "old"), Talk("after", "a", "old")
    for row in after.sessions:
        row["started"] = START + timedelta(seconds=9)
    invalid = {"status": "malformed", "number": 1}
    invalid |= dict.fromkeys(("kind", "origin", "successor", "by_recovery", "made_ms"))
    rows = [
        statement("a", "first", 5),
        statement("a", "first", 5, **invalid),
        statement("a", "second", 7),
        statement("new", "first", 5, direction="sent"),
    ]
    table = gold_tables(
        summary(before, after, statements=rows), lambda _: events_of(before, after), CHECK_KEY
    )["statements"]
    columns = ("journal", "session", "number", "status", "origin", "before", "after")
    assert values(chosen(table), *columns) == [
        ("a", "first", 0, "ok", "old", ["before"], ["after"]),
        ("a", "first", 1, "malformed", None, None, None),
        ("a", "second", 0, "ok", "old", None, None),
        ("new", "first", 0, "ok", "old", None, None),
    ]
    assert {row["made_ms"] for row in chosen(table, status="ok")} == {2**48 - 1}


def test_findings_have_their_weight(gold: Gold) -> None:
    assert values(chosen(gold["findings"]), "kind", "weight", "count") == [
        ("gap", FAULT, 2),
        ("missing-journal", KINDS["missing-journal"].weight, 1),
        ("no-such-kind", FAULT, 1),
        ("not-covered", NOTICE, 1),  # a tunnel that `b` must have had, behind its last event
        ("unsealed", NOTICE, 1),
    ]


def test_without_an_auditors_key() -> None:
    talk = Talk("dark")
    talk.say("a", None, 1)
    talk.close("a", 2)
    for row in talk.events:
        row.update(type=None, category=None, code=None, payload_size=None)
    tables = made(talk)
    assert values(chosen(tables["traffic"]), "node", "topic", "events", "ok", "payload_bytes") == [
        ("a", None, 1, 1, 0),
        ("a", None, 3, 3, 0),
        ("b", None, 1, 1, 0),
        ("b", None, 3, 3, 0),
    ]
    assert values(chosen(tables["sessions"]), "events", "responder_code") == [(4, 0)]
    for name in ("calls", "topics"):
        assert tables[name].num_rows == 0
