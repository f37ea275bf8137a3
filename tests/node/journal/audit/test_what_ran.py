"""Rows show what the node did: cells of other types and look-alike names mislead no reader.

The fuzz target `audit` compares the two for arbitrary scripts.
"""

from typing import Any

import pytest

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.journal.audit.content import Content, read_content
from parley._node.journal.audit.rows import EVENT_COLUMNS, MALFORMED, OK
from parley._node.protocol import codes
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of

OPEN = codes.STREAM << 8 | codes.OPEN
CALL = codes.SIM << 8 | codes.CALL
NOTES = codes.SIM << 8 | codes.NOTES
EMIT = codes.NAMED << 8 | codes.EMIT
JOIN = codes.BUS << 8 | codes.BusType.JOIN
TEXT, CODE, STREAM, TOPIC, NAME = keys.TEXT, keys.CODE, keys.STREAM, keys.TOPIC, keys.NAME
PLACE = {NAME: "a.b", keys.GROUP: "g", keys.CONSUMER: "c", keys.AFTER: "$"}


@pytest.mark.parametrize(
    ("number", "cells", "topic"),
    [
        (EMIT, {NAME: "parley.echo", TOPIC: "harmless.ping"}, "parley.echo"),
        (EMIT, {NAME: "parley.echo", TOPIC: 5, keys.LABEL: "x"}, "parley.echo"),
        (CALL, {TOPIC: "t", CODE: "x", STREAM: -1}, "t"),
        (CALL, {TOPIC: "t", NAME: "n", keys.NOTES: 1}, "t"),
        (JOIN, {**PLACE, TOPIC: "harmless"}, "a.b"),
    ],
)
def test_cells_of_other_types_are_ignored(number: int, cells: dict[int, Any], topic: str) -> None:
    content = read_content(1, number, encode(dict(sorted(cells.items()))))
    assert (content.status, content.topic) == (OK, topic)
    assert (content.code, content.opens, content.label) == (None, None, None)


def test_open_event_has_its_label() -> None:
    payload = encode({keys.LABEL: "app/x", TOPIC: "harmless"})
    content = read_content(3, OPEN, payload)
    assert (content.status, content.label, content.topic) == (OK, "app/x", None)


@pytest.mark.parametrize(
    ("stream", "number", "payload"),
    [
        (1, CALL, b"\0"),  # Without a payload.
        (1, CALL, encode({TOPIC: "t", keys.WINDOW: 0})),
        (0, CALL, encode({TOPIC: "t"})),  # Ends the connection.
        (1, OPEN, encode({keys.LABEL: "x"})),
        (2, codes.CONNECTION << 8 | codes.CLOSE, encode({CODE: 0})),
        (0, codes.CONNECTION << 8 | codes.PING, b"\1"),
        (0, codes.CONNECTION << 8 | codes.CLOSE, encode({CODE: 0, TEXT: "x" * 4_096})),
        (3, codes.STREAM << 8 | 6, b"\0"),
        (1, JOIN, encode({**PLACE, NAME: "nodot"})),
        (1, codes.BUS << 8 | 99, b"\0"),
    ],
)
def test_event_that_a_node_refuses_is_malformed(stream: int, number: int, payload: bytes) -> None:
    content = read_content(stream, number, payload)
    assert (content.status, content.topic, content.label) == (MALFORMED, None, None)


def test_unknown_types_are_dropped() -> None:
    assert read_content(1, codes.SIM << 8 | 9, b"\0") == Content("unknown")
    assert read_content(1, 63 << 8 | 1, b"junk") == Content("unknown")


def test_look_alike_names_are_distinguished() -> None:
    made = RecordedPair()
    core = made.pair.a.core
    plain, carried = core.open_stream("news"), core.open_stream("topic:news")
    said: list[tuple[int, int, dict[int, Any]]] = [
        (1, EMIT, {NAME: "c", keys.NAMESPACE: "a.b"}),
        (1, EMIT, {NAME: "b.c", keys.NAMESPACE: "a"}),
        (1, EMIT, {NAME: "a.b.c", keys.NAMESPACE: ""}),
        (plain, 64 << 8 | 1, {}),
        (carried, 64 << 8 | 1, {}),
        (carried, codes.SIM << 8 | codes.NOTIFY, {TOPIC: "harmless"}),
        (carried, NOTES, {keys.NOTES: []}),
        (plain, codes.SIM << 8 | codes.NOTIFY, {TOPIC: "other"}),
    ]
    for stream, number, cells in said:
        core.send(stream, 0, number >> 8, number & 255, encode(cells), lbm=False)
    made.run(0.05)
    made.end()
    audit = audit_of(made.journals[0].segments, AUDITOR)
    assert audit.take_findings() == []
    rows = [dict(zip(EVENT_COLUMNS, row, strict=True)) for row in audit.take_events()]
    reported = [
        (row["topic"], row["namespace"], row["label"], row["items"])
        for row in rows
        if row["category"] in (codes.SIM, codes.NAMED, 64)
    ]
    assert sorted(reported, key=repr) == sorted(
        [
            ("c", "a.b", None, 1),
            ("b.c", "a", None, 1),
            ("a.b.c", None, None, 1),
            (None, None, "news", 1),
            ("news", None, "topic:news", 1),
            ("news", None, "topic:news", 1),
            ("news", None, "topic:news", 0),
            ("other", None, "news", 1),
        ],
        key=repr,
    )
