"""Requests and answers as bytes: round trips, and rejection of malformed payloads."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.bus.model import (
    ConsumerInfo,
    Delivery,
    GroupInfo,
    PendingInfo,
    Published,
    StoredEvent,
    StreamInfo,
)
from parley._node.bus.remote import limits, messages
from parley._node.bus.remote.messages import (
    FIELDS,
    REQUESTS,
    Answer,
    EventRow,
    Nack,
    Publish,
    Read,
    Request,
    Touch,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    milliseconds,
    row_cost,
    take_fitting,
)
from tests.sweep import sweep

U64 = 2**64 - 1
ids = st.builds(lambda a, b: f"{a}-{b}", st.integers(0, U64), st.integers(0, U64))
parts = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,5}", fullmatch=True)
names = st.lists(parts, min_size=2, max_size=3).map(".".join)
words = st.from_regex(r"[!-~]{1,10}", fullmatch=True)
positions = ids | st.just("$")
times = st.integers(0, limits.LONGEST_TIME_MS).map(lambda ms: ms / 1000)
numbers = st.integers(0, limits.LARGEST_NUMBER)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "name": names,
    "stream": names | parts.map("{}.*".format),
    "group": words,
    "consumer": words,
    "id": ids,
    "ids": st.lists(ids, min_size=1, max_size=3),
    "events": st.lists(
        st.builds(EventRow, names, st.text(max_size=5), st.none() | words, st.integers(1, 9)),
        min_size=1,
        max_size=3,
    ),
    "durable": st.booleans(),
    "number": st.integers(1, limits.LARGEST_COUNT),
    "wait": st.integers(0, limits.LONGEST_WAIT_MS).map(lambda ms: ms / 1000),
    "idle": times,
    "delay": times,
    "error": st.text(max_size=20),
    "after": positions,
    "after_id": ids,
    "after_name": st.text(max_size=10),
    "until": st.none() | ids,
    "before": st.none() | ids,
    "max_length": st.none() | numbers,
    "max_bytes": st.none() | numbers,
    "approximate": st.booleans(),
}
requests: st.SearchStrategy[Request] = st.sampled_from(list(REQUESTS.values())).flatmap(
    lambda kind: st.tuples(*[VALUES[name] for name in kind._fields]).map(kind._make)
)


def test_each_field_has_its_cell() -> None:
    used = {name for kind in REQUESTS.values() for name in kind._fields}
    assert used == set(FIELDS) == set(VALUES)


@given(requests)
def test_requests_round_trip(request: Request) -> None:
    number, payload = encode_request(request)
    assert type(decode_request(number, payload)) is REQUESTS[number]
    assert decode_request(number, payload) == request
    assert encode_request(decode_request(number, payload)) == (number, payload)


@given(requests, st.data())
def test_any_payload_is_a_request_or_malformed(request: Request, data: st.DataObject) -> None:
    """Decoding altered bytes or types succeeds or raises LbmDecodeError."""
    number, payload = encode_request(request)
    at = data.draw(st.integers(0, len(payload) - 1))
    changed = data.draw(
        st.sampled_from(
            [
                payload[:at],
                payload[:at] + bytes([data.draw(st.integers(0, 255))]) + payload[at + 1 :],
                payload + b"\x00",
            ]
        )
    )
    for kind in (number, data.draw(st.integers(1, 255))):
        try:
            again = decode_request(kind, changed)
        except LbmDecodeError:
            continue
        assert type(again) is REQUESTS[kind]


WRONG: dict[str, list[Any]] = {
    "name": ["", "nodot", "a.b c", "a." + "b" * 255, b"a.b", None],
    "stream": ["", "*", ".*", "a.*.*", "a b.*", "a.b*", 1],
    "group": ["", "two words", "ü", "g" * 257, 1],
    "consumer": ["", "two words", "c" * (limits.LONGEST_CONSUMER + 1), 1],
    "id": [[], ["1-0", "2-0"], ["1"], "1-0"],
    "ids": [[], ["1-0"] * 1_001, ["01-0"], ["1"], ["1-0 "], [f"{2**64}-0"], [b"1-0"], {}],
    "events": [
        [],
        [["a.b", "{}", None, 1]] * 1_001,
        [["a.b", "{}", None]],
        [["ab", "{}", None, 1]],
        [["a.b", b"{}", None, 1]],
        [["a.b", "{}", "two words", 1]],
        [["a.b", "{}", None, 0]],
        [["a.b", "{}", None, True]],
        [["a.b", "{}", None, 2**31]],
        ["a.b"],
        {},
    ],
    "durable": [0, "yes"],
    "number": [0, 1_001, True, "1"],
    "wait": [60_001, -1, 1.0],
    "idle": [2**40, -1, 1.0],
    "delay": [2**40, -1, 1.0],
    "error": ["e" * 501, 1],
    "after": ["first", "", "1", 1],
    "after_id": ["$", ""],
    "after_name": ["n" * 257, 1],
    "until": ["$", 1],
    "before": ["$", 1],
    "max_length": [-1, 2**63, True],
    "max_bytes": [-1, 2**63, True],
    "approximate": [1],
}


@sweep("name", WRONG)
def test_invalid_cells(name: str) -> None:
    key = FIELDS[name].key
    kinds = [kind for kind, request in REQUESTS.items() if name in request._fields]
    for kind in kinds:
        cells = whole_cells(kind)
        for value in WRONG[name]:
            with pytest.raises(LbmDecodeError):
                decode_request(kind, encode({**cells, key: value}))


@sweep("kind", REQUESTS)
def test_required_cells(kind: int) -> None:
    """Without a required cell, a request is malformed; an optional cell has its default."""
    request = REQUESTS[kind]
    optional = set(request._field_defaults)
    cells = whole_cells(kind)
    assert len(cells) == len(request._fields)
    for field in request._fields:
        payload = encode({key: v for key, v in cells.items() if key != FIELDS[field].key})
        if field in optional:
            default = request._field_defaults[field]
            assert getattr(decode_request(kind, payload), field) == default
        else:
            with pytest.raises(LbmDecodeError, match="missing"):
                decode_request(kind, payload)


def whole_cells(kind: int) -> dict[int, Value]:
    """Return the cells of a request with all optional fields."""
    request = REQUESTS[kind]
    whole = {
        "ids": ["1-0"],
        "events": [EventRow("a.b", "{}", None, 1)],
        "number": 5,
        "durable": False,
    }
    values = [
        whole.get(field, 1.0 if field in ("wait", "idle", "delay") else "a.b")
        if field not in ("after", "after_id", "id", "until", "before")
        else "1-0"
        for field in request._fields
    ]
    fixed = {"max_length": 1, "max_bytes": 1, "approximate": True}
    values = [fixed.get(name, value) for name, value in zip(request._fields, values, strict=True)]
    return decode(encode_request(request._make(values))[1])


def test_unknown_cells_are_ignored_and_no_payload_is_no_cells() -> None:
    request = Touch("a.b", "g", "c", ["1-0"])
    number, payload = encode_request(request)
    more = encode({**decode(payload), keys.TOPIC: [1], keys.COUNT: -1, 200: [1], 300: "x"})
    assert decode_request(number, more) == request
    with pytest.raises(LbmDecodeError):
        decode_request(number, b"")


@pytest.mark.parametrize("subcategory", [1, 23, 255])
def test_unknown_request_types(subcategory: int) -> None:
    with pytest.raises(LbmDecodeError, match="unknown request 6"):
        decode_request(subcategory, b"\xa0")


def test_durations_are_whole_milliseconds_and_bounded() -> None:
    assert [milliseconds(s) for s in (0.0, -1.0, float("nan"), 0.0001, 1.5)] == [0, 0, 0, 1, 1500]
    assert milliseconds(float("inf")) == limits.LONGEST_TIME_MS
    assert milliseconds(16.027) == 16_027  # 16.027 * 1000 is slightly above 16027.
    assert milliseconds(1.001) == 1_001  # 1.001 * 1000 is slightly below 1001.
    long = decode_request(*encode_request(Nack("a.b", "g", "c", "1-0", 1e30, "")))
    assert isinstance(long, Nack)
    assert long.delay == limits.LONGEST_TIME_MS / 1000
    assert Read("a.b", "g", "c", 1, 90.0) != decode_request(
        *encode_request(Read("a.b", "g", "c", 1, 90.0))
    )


# Answers.

EVENT = StoredEvent("1-0", "a.b", '{"a":1}', None, 1)
ROWS: list[tuple[Any, Any, Any]] = [
    (Published("1-0", True), list, messages.read_published),
    (Delivery(EVENT, 3), messages.delivery_row, messages.read_delivery),
    (EVENT._replace(key="k"), list, messages.read_stored),
    (StreamInfo("a.b", 0, 0, None, None), list, messages.read_stream),
    (StreamInfo("a.b", 2, 9, "1-0", "2-0"), list, messages.read_stream),
    (GroupInfo("a.b", "g", None, 1, 2, 3, 4, "1-0"), list, messages.read_group),
    (ConsumerInfo("c", 1, 0.25), messages.consumer_row, messages.read_consumer),
    (PendingInfo("1-0", "c", 1, 0.5, None), messages.pending_row, messages.read_pending),
    (PendingInfo("1-0", "", 0, 0.5, 1.0), messages.pending_row, messages.read_pending),
]


@pytest.mark.parametrize(("record", "row", "read"), ROWS)
def test_a_row(record: Any, row: Any, read: Any) -> None:
    written = row(record)
    answer = decode_answer(encode_answer(Answer(rows=[written], ids=["3-4"], number=7, more=True)))
    assert answer == Answer(0, "", [written], ["3-4"], 7, True)
    assert messages.read_rows(answer.rows, read) == [record]
    assert row_cost(written) >= len(encode({keys.ROWS: [written]})) - 4
    others = [[*written, None], written[:-1], [], None, {}]
    others += [[*written[:at], b"", *written[at + 1 :]] for at in range(len(written))]
    for wrong in others:
        with pytest.raises(LbmDecodeError):
            messages.read_rows([wrong], read)
    with pytest.raises(LbmDecodeError, match="without its rows"):
        messages.read_rows(None, read)


@pytest.mark.parametrize(
    "cells",
    [{}, {16: -1}, {16: "0"}, {16: 0, 17: 1}, {16: 0, 36: ["x"]}, {16: 0, 37: 1}, {16: 0, 49: 1}],
)
def test_no_answer(cells: dict[int, Any]) -> None:
    with pytest.raises(LbmDecodeError):
        decode_answer(encode(cells))


def test_as_many_rows_as_fit() -> None:
    rows = [["x" * 100]] * 5
    cost = row_cost(rows[0])
    assert take_fitting(rows, 2 * cost) == (rows[:2], True)
    assert take_fitting(rows, 5 * cost) == (rows, False)
    assert take_fitting(rows, cost - 1) == ([], True)
    assert row_cost(["ü"]) == row_cost(["uu"])


def test_publish_omits_default_cells() -> None:
    _, payload = encode_request(Publish([EventRow("a.b", "{}", None, 1)]))
    assert list(decode(payload)) == [keys.ROWS]
