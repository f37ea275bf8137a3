"""Tests of streams: every row of section 8's tables, flow control, and order."""

from typing import Any

import pytest

from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode
from parley._lbm.padding import parse_padding
from parley._node.protocol.codes import (
    CHUNK,
    DATA,
    FINISH,
    OPEN,
    RESET,
    SIM,
    STREAM,
    WINDOW,
    CloseCode,
)
from parley._node.protocol.errors import (
    LimitReachedError,
    LocalError,
    LocalProtocolError,
    PayloadTooLargeError,
)
from parley._node.protocol.event import Event
from parley._node.protocol.limits import PEER_MEMORY
from parley._node.protocol.memory_budget import EVENT_WEIGHT, STREAM_WEIGHT
from parley._node.protocol.reports import (
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
    WindowReceived,
)
from parley._node.protocol.send_queue import OutgoingEvent
from parley._node.protocol.states import State
from tests.node.protocol.pair import ALIVE, Pair, Side, assert_ended, assert_violation, open_pair
from tests.sweep import sweep

EACH_KIND = pytest.mark.parametrize("plaintext", ["never", "only"])
LABEL = {keys.LABEL: "app/test"}


def streams(side: Side) -> set[int]:
    """Return the open streams of a side."""
    return set(side.session.mux.stream_table.open)


def with_stream(**settings: Any) -> tuple[Pair, int]:
    """Return a pair on which `a` has opened a stream."""
    pair = open_pair(**settings)
    stream = pair.a.core.open_stream("app/test")
    pair.pump()
    return pair.forget(), stream


def watch(side: Side) -> list[OutgoingEvent]:
    """Return the list of events of stream 0 and Opens that a side sends from now on."""
    seen: list[OutgoingEvent] = []
    mux = side.session.mux
    honest = mux.control

    def control(event: OutgoingEvent) -> None:
        seen.append(event)
        honest(event)

    mux.control = control
    return seen


def told(seen: list[OutgoingEvent]) -> list[tuple[int, dict[int, Value]]]:
    """Return subcategory and cells of such events."""
    return [(event.subcategory, decode(bytes(event.payload))) for event in seen]


# Opening and closing a stream.


@EACH_KIND
def test_both_sides_open_write_and_finish(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    assert pair.a.core.open_stream("one") == 3
    assert pair.a.core.open_stream("two") == 5
    assert pair.b.core.open_stream("three") == 2
    pair.pump()
    assert pair.b.reports == [StreamOpened(3, "one"), StreamOpened(5, "two")]
    assert pair.a.reports == [StreamOpened(2, "three")]
    pair.forget()
    for side in pair.sides:
        for stream in (2, 3):
            side.core.send_data(stream, b"\x00")
            side.core.send(stream, 9, 64, 1, b"", lbm=False)
            side.core.finish_stream(stream)
    pair.pump()
    for side in pair.sides:
        for stream in (2, 3):
            ours = [report for report in side.reports if getattr(report, "stream", 0) == stream]
            assert ours == [
                Event(stream, 0, STREAM, DATA, b"\x00", 65),
                Event(stream, 9, 64, 1, b"", 65),  # an absent payload costs one byte
                StreamFinished(stream),
            ]
        assert streams(side) == {5}


def test_open_names_a_smaller_window() -> None:
    pair = open_pair(stream_window=4_096)
    small = pair.a.core.open_stream("small", window=1)
    plain = pair.a.core.open_stream("plain")
    pair.pump()
    table = pair.b.session.mux.stream_table.open
    assert (table[small].credit.left, table[plain].credit.left) == (1, 4_096)
    assert pair.a.session.mux.stream_table.open[small].window.left == 1


@pytest.mark.parametrize("window", [0, -1, 2**31])
def test_a_window_of_ours_out_of_range(window: int) -> None:
    pair = open_pair()
    with pytest.raises(ValueError, match="window"):
        pair.a.core.open_stream("x", window=window)
    assert not streams(pair.a)


def test_when_memory_is_short_open_names_less() -> None:
    pair = open_pair(peer_memory=4_600_000)
    ids = [pair.a.core.open_stream(str(n)) for n in range(50)]
    pair.pump()
    table = pair.b.session.mux.stream_table.open
    windows = [table[id].credit.left for id in ids]
    room = 2_300_000 - 262_144  # each stream gets an eighth of the remaining memory
    assert windows[:3] == [262_144, room // 8, (room - room // 8) // 8]
    assert windows[-1] == 1_024


# Events on a stream: the first table.


@EACH_KIND
@sweep("who", ["a", "b"])
@sweep("subcategory", [WINDOW, FINISH, RESET, DATA, 6, 7, 255])
def test_only_open_opens(plaintext: str, who: str, subcategory: int) -> None:
    pair = open_pair(plaintext=plaintext)
    sender = getattr(pair, who)
    pair.inject(sender, 3 if who == "a" else 2, STREAM, subcategory)
    assert_violation(pair, pair.other(sender), CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@pytest.mark.parametrize(("who", "stream"), [("a", 2), ("a", 4), ("b", 3), ("b", 2**32 - 1)])
def test_open_with_the_other_sides_parity(plaintext: str, who: str, stream: int) -> None:
    pair = open_pair(plaintext=plaintext)
    sender = getattr(pair, who)
    pair.inject(sender, stream, STREAM, OPEN, LABEL)
    assert_violation(pair, pair.other(sender), CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@pytest.mark.parametrize("stream", [3, 5, 7])
def test_open_with_an_id_not_above_the_last(plaintext: str, stream: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 7, STREAM, OPEN, LABEL)
    assert pair.b.reports == [StreamOpened(7, "app/test")]
    pair.inject(pair.a, stream, STREAM, OPEN, LABEL)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_ids_may_be_skipped() -> None:
    pair = open_pair()
    pair.inject(pair.a, 2**32 - 1, STREAM, OPEN, LABEL)
    assert pair.b.reports == [StreamOpened(2**32 - 1, "app/test")]


OPENS: list[bytes | dict[int, Value]] = [
    {},
    {keys.LABEL: 1},
    {keys.LABEL: b"x"},
    {keys.LABEL: "x", keys.WINDOW: 0},
    {keys.LABEL: "x", keys.WINDOW: -1},
    {keys.LABEL: "x", keys.WINDOW: 2**31},
    {keys.LABEL: "x", keys.WINDOW: "1"},
    b"\x00",
    b"\xff",
]


@pytest.mark.parametrize("payload", OPENS)
def test_a_malformed_open(payload: bytes | dict[int, Value]) -> None:
    pair = open_pair()
    pair.inject(pair.a, 3, STREAM, OPEN, payload)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)
    assert not pair.b.all(StreamOpened)


def test_the_greatest_window_in_open() -> None:
    pair = open_pair()
    pair.inject(pair.a, 3, STREAM, OPEN, {**LABEL, keys.WINDOW: 2**31 - 1})
    assert pair.b.session.mux.stream_table.open[3].credit.left == 2**31 - 1


@EACH_KIND
@sweep("subcategory", [OPEN, WINDOW, RESET, 6, 7, 255])
def test_what_does_not_belong_on_an_open_stream(plaintext: str, subcategory: int) -> None:
    pair, stream = with_stream(plaintext=plaintext)
    payload = {**LABEL, keys.STREAM: stream, keys.CREDIT: 1, keys.CODE: 0}
    pair.inject(pair.a, stream, STREAM, subcategory, payload)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@pytest.mark.parametrize("stream", [1, 3])
def test_category_1_off_stream_0(plaintext: str, stream: int) -> None:
    pair, _ = with_stream(plaintext=plaintext)
    pair.inject(pair.a, stream, 1, 6, async_id=1)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@sweep("subcategory", [OPEN, WINDOW, FINISH, RESET, 6, 255])
def test_stream_1_is_never_opened_finished_or_reset(plaintext: str, subcategory: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 1, STREAM, subcategory, {**LABEL, keys.STREAM: 1, keys.CODE: 0})
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_data_on_stream_1_is_handed_up_as_it_is() -> None:
    pair = open_pair()
    pair.inject(pair.a, 1, STREAM, DATA, b"\x00")
    assert pair.b.events == [Event(1, 0, STREAM, DATA, b"\x00", 0)]


def test_finish_has_no_payload() -> None:
    for payload in (b"\xa0", b"\x01", b"\x00\x00"):
        pair, stream = with_stream()
        pair.inject(pair.a, stream, STREAM, FINISH, payload)
        assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_async_ids_that_mean_nothing_are_not_looked_at() -> None:
    pair, stream = with_stream()
    pair.inject(pair.a, stream, STREAM, FINISH, async_id=77)
    assert pair.b.reports == [StreamFinished(stream)]


# Each way in which a's direction of a's stream ends at b, and who acts.
ENDINGS: dict[str, list[tuple[str, str]]] = {
    "finished": [("a", "finish")],
    "finished by both": [("a", "finish"), ("b", "finish")],
    "reset": [("a", "reset")],
    "reset by the other": [("b", "reset")],
}


def act(side: Side, stream: int, what: str) -> None:
    if what == "finish":
        side.core.finish_stream(stream)
    else:
        side.core.reset_stream(stream, 64, "enough")


@EACH_KIND
@sweep("ending", ENDINGS)
@sweep(
    ("category", "subcategory", "payload"),
    [
        (STREAM, OPEN, LABEL),
        (STREAM, FINISH, b"\x00"),
        (STREAM, DATA, b"x"),
        (SIM, CHUNK, b"x"),
        (64, 1, b"x"),
    ],
)
def test_an_event_on_an_ended_direction(
    plaintext: str, ending: str, category: int, subcategory: int, payload: Any
) -> None:
    pair, stream = with_stream(plaintext=plaintext)
    for who, what in ENDINGS[ending]:
        act(getattr(pair, who), stream, what)
    pair.pump()
    pair.inject(pair.a, stream, category, subcategory, payload)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_what_meets_our_reset_on_its_way_is_dropped() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.a.core.send_data(stream, bytes(400))
    pair.b.core.reset_stream(stream, CloseCode.REFUSED, "no")
    pair.carry(pair.a)  # b has reset the stream, but a doesn't know yet
    for _ in range(2):
        pair.inject(pair.a, stream, 64, 1, bytes(400))
    for _ in range(30):
        pair.inject(pair.a, stream, SIM, CHUNK, b"x")
    assert not pair.b.reports
    assert pair.b.code == ALIVE
    assert pair.b.session.mux.unconsumed == 0
    pair.pump()
    assert pair.a.reports == [StreamReset(stream, CloseCode.REFUSED, "no")]
    assert not streams(pair.a) | streams(pair.b)


def test_what_is_dropped_after_our_reset_is_bounded_by_credit_all_the_same() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.b.core.reset_stream(stream, CloseCode.REFUSED, "no")
    for _ in range(3):  # the third makes it negative
        pair.inject(pair.a, stream, 64, 1, bytes(400))
    assert pair.b.code == ALIVE
    pair.inject(pair.a, stream, 64, 1, b"x")
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_keys_are_freed_when_a_direction_ends() -> None:
    pair, stream = with_stream()
    pair.a.core.send_data(stream, b"x")
    pair.b.core.send_data(stream, b"x")
    pair.pump()
    pair.a.core.finish_stream(stream)
    pair.pump()
    ours, theirs = pair.a.channel, pair.b.channel
    assert stream not in ours.sender.counters()
    assert stream not in theirs.receiver.counters()
    assert stream in ours.receiver.counters()
    assert stream in theirs.sender.counters()
    pair.b.core.reset_stream(stream, 64)
    pair.pump()
    assert stream not in ours.receiver.counters()
    assert stream not in theirs.sender.counters()


def test_no_key_is_made_for_a_stream_that_is_not_open() -> None:
    pair = open_pair()
    for number in range(5):
        pair2 = open_pair()
        channel = pair2.b.channel
        pair2.inject(pair2.a, 4 + 2 * number, 64, 1, b"x")
        assert set(channel.receiver.counters()) <= {0}
    assert not pair.b.channel.receiver.counters()


# Reset and Finish in every combination.

ACTS = ("finish", "reset")


@EACH_KIND
@sweep("first", ACTS)
@sweep("second", [*ACTS, ""])
@sweep("crossing", [False, True])
def test_reset_and_finish_combined(plaintext: str, first: str, second: str, crossing: bool) -> None:
    pair, stream = with_stream(plaintext=plaintext)
    seen = [watch(side) for side in pair.sides]
    act(pair.a, stream, first)
    if not crossing:
        pair.pump()
    try:
        if second:
            act(pair.b, stream, second)
    except LocalError:
        assert (first, second, crossing) == ("reset", "finish", False)  # it is gone
    if crossing and second:
        from_a, from_b = pair.a.take(pair.now), pair.b.take(pair.now)
        pair.deliver(pair.a, from_b)
        pair.deliver(pair.b, from_a)
    pair.pump()
    by_a: list[Report] = [StreamFinished(stream)]
    by_b: list[Report] = [StreamFinished(stream)]
    if first == "reset":
        by_a = [StreamReset(stream, 64, "enough")]
        by_b = []  # the event of b that crossed a's Reset
    elif not second:
        by_b = []
    if second == "reset" and (first == "finish" or crossing):
        by_b = [StreamReset(stream, 64, "enough")] if first == "finish" else []
    if first == "reset" and second == "reset" and crossing:
        by_a = []
    if crossing and first == "finish" and second == "reset":
        by_a = []  # the Finish that crossed b's Reset
    assert pair.b.reports == by_a
    assert pair.a.reports == by_b
    # A Reset is answered by a Reset, unless the side has finished or reset already.
    expected = {
        ("finish", "finish"): [0, 0],
        ("finish", "reset"): [0, 1],
        ("finish", ""): [0, 0],
        ("reset", "finish"): [1, 0 if crossing else 1],
        ("reset", "reset"): [1, 1],
        ("reset", ""): [1, 1],
    }[first, second]
    assert [len(events) for events in seen] == expected
    open_still = {stream} if (first, second) == ("finish", "") else set()
    assert streams(pair.a) == streams(pair.b) == open_still


def test_reset_drops_what_waits() -> None:
    pair, stream = with_stream()
    pair.a.core.send_data(stream, b"never")
    pair.a.core.finish_stream(stream)
    pair.a.core.reset_stream(stream, 64)
    assert pair.a.core.outbox.waiting(stream) == 0
    pair.pump()
    assert pair.b.reports == [StreamReset(stream, 64, "")]


def test_the_other_sides_reset_drops_what_waits() -> None:
    pair, stream = with_stream()
    pair.a.core.send_data(stream, b"never")
    pair.b.core.reset_stream(stream, 64)
    pair.carry(pair.b)
    assert pair.a.core.outbox.waiting(stream) == 0
    pair.pump()
    assert not pair.b.reports


def test_a_second_reset_of_ours_is_nothing() -> None:
    pair, stream = with_stream()
    seen = watch(pair.a)
    pair.a.core.reset_stream(stream, 64)
    pair.a.core.reset_stream(stream, 65)
    pair.a.core.reset_stream(99, 65)
    assert len(seen) == 1


@pytest.mark.parametrize("code", [-1, -2, 36, 63, 2**32])
def test_a_code_that_reset_may_not_carry(code: int) -> None:
    pair, stream = with_stream()
    with pytest.raises(ValueError, match="code"):
        pair.a.core.reset_stream(stream, code)
    assert streams(pair.a) == {stream}


@pytest.mark.parametrize("code", [0, 13, 32, 33, 34, 35, 64, 2**32 - 1])
def test_the_codes_of_reset(code: int) -> None:
    pair, stream = with_stream()
    pair.a.core.reset_stream(stream, code)
    pair.pump()
    assert pair.b.reports == [StreamReset(stream, code, "")]


# Events about a stream: the second table.


@EACH_KIND
@sweep("stream", [0, 1, 2, 3, 5, 2**32 - 1, 2**32, 2**64 - 1])
@sweep("subcategory", [WINDOW, RESET])
def test_window_and_reset_of_what_was_never_opened(
    plaintext: str, stream: int, subcategory: int
) -> None:
    pair = open_pair(plaintext=plaintext)
    cells = {keys.STREAM: stream, keys.CREDIT: 1, keys.CODE: 0}
    pair.inject(pair.a, 0, STREAM, subcategory, cells)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_window_and_reset_of_what_is_gone_are_ignored() -> None:
    pair, stream = with_stream()
    pair.a.core.reset_stream(stream, 64)
    pair.pump()
    pair.forget()
    for side in pair.sides:
        pair.inject(side, 0, STREAM, WINDOW, {keys.STREAM: stream, keys.CREDIT: 1})
        pair.inject(side, 0, STREAM, RESET, {keys.STREAM: stream, keys.CODE: 0})
    assert not pair.a.reports + pair.b.reports


def test_window_for_our_ended_direction_is_ignored() -> None:
    pair, stream = with_stream()
    pair.b.core.finish_stream(stream)
    pair.pump()
    cells = {keys.STREAM: stream, keys.CREDIT: 2**31 - 1}
    pair.inject(pair.a, 0, STREAM, WINDOW, cells)
    pair.inject(pair.a, 0, STREAM, WINDOW, cells)
    assert pair.b.code == ALIVE


CELLS: list[tuple[int, bytes | dict[int, Value]]] = [
    (WINDOW, {keys.STREAM: 3}),
    (WINDOW, {keys.CREDIT: 3}),
    (WINDOW, {keys.STREAM: "3", keys.CREDIT: 1}),
    (WINDOW, {keys.STREAM: 3, keys.CREDIT: -1}),
    (WINDOW, {keys.STREAM: 3, keys.CREDIT: 2**31}),
    (WINDOW, {keys.STREAM: 3, keys.CREDIT: 2**64 - 1}),
    (WINDOW, {keys.STREAM: 3, keys.CREDIT: 1, keys.REQUEST: 0}),
    (WINDOW, {keys.STREAM: 3, keys.CREDIT: 1, keys.REQUEST: 65_536}),
    (WINDOW, {keys.STREAM: 3, keys.CREDIT: 1, keys.REQUEST: "1"}),
    (RESET, {keys.STREAM: 3}),
    (RESET, {keys.CODE: 3}),
    (RESET, {keys.STREAM: 3, keys.CODE: -1}),
    (RESET, {keys.STREAM: 3, keys.CODE: 2**32}),
    (RESET, {keys.STREAM: 3, keys.CODE: 0, keys.TEXT: b"x"}),
    (WINDOW, b"\x00"),
    (RESET, b"\xff"),
]


@sweep(("subcategory", "payload"), CELLS)
def test_malformed_window_and_reset(subcategory: int, payload: bytes | dict[int, Value]) -> None:
    pair, stream = with_stream()
    assert stream == 3
    pair.inject(pair.a, 0, STREAM, subcategory, payload)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@sweep(
    ("category", "subcategory"),
    [
        (STREAM, OPEN),
        (STREAM, FINISH),
        (STREAM, DATA),
        (STREAM, 6),
        (3, 1),
        (4, 1),
        (5, 1),
        (64, 1),
    ],
)
def test_what_does_not_belong_on_stream_0(plaintext: str, category: int, subcategory: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 0, category, subcategory, LABEL)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_window_for_the_chunks_of_a_call_is_reported() -> None:
    pair, stream = with_stream()
    for on in (1, stream):
        cells: dict[int, Value] = {keys.STREAM: on, keys.CREDIT: 500, keys.REQUEST: 7}
        pair.inject(pair.a, 0, STREAM, WINDOW, cells)
    assert pair.b.reports == [WindowReceived(1, 7, 500), WindowReceived(stream, 7, 500)]
    assert pair.b.session.mux.stream_table.open[stream].credit.left == 262_144


# How many streams.


@EACH_KIND
def test_too_many_streams(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext, max_streams=3)
    for stream in (3, 5, 7):
        pair.inject(pair.a, stream, STREAM, OPEN, LABEL)
    assert pair.b.code == ALIVE
    pair.inject(pair.a, 9, STREAM, OPEN, LABEL)
    assert_violation(pair, pair.b, CloseCode.TOO_MANY_STREAMS)
    assert len(pair.b.all(StreamOpened)) == 3


def test_our_own_streams_are_bounded_without_harm() -> None:
    pair = open_pair(b={"max_streams": 2})
    assert [pair.a.core.open_stream("x") for _ in range(2)] == [3, 5]
    with pytest.raises(LimitReachedError):
        pair.a.core.open_stream("x")
    pair.pump()
    pair.a.core.reset_stream(3, 64)
    pair.pump()
    assert pair.a.core.open_stream("x") == 7
    pair.pump()
    assert pair.b.code == ALIVE


def test_a_stream_that_we_reset_counts_until_the_other_side_has_answered() -> None:
    pair = open_pair(max_streams=1)
    pair.inject(pair.a, 3, STREAM, OPEN, LABEL)
    pair.b.core.reset_stream(3, 64)
    pair.inject(pair.a, 5, STREAM, OPEN, LABEL)
    assert_ended(pair.b, CloseCode.TOO_MANY_STREAMS)


# Flow control.


def test_the_documented_example() -> None:
    pair, stream = with_stream()
    credit = pair.a.session.mux.stream_table.open[stream].credit
    for _ in range(5):
        pair.a.core.send_data(stream, bytes(65_536))
    pair.a.take(pair.now)
    assert credit.left == -256
    assert pair.a.core.outbox.waiting(stream) == 1
    pair.inject(pair.b, 0, STREAM, WINDOW, {keys.STREAM: stream, keys.CREDIT: 131_200})
    pair.a.take(pair.now)
    assert credit.left == 65_344
    assert pair.a.core.outbox.waiting(stream) == 0


@EACH_KIND
def test_an_event_at_no_credit(plaintext: str) -> None:
    pair, stream = with_stream(plaintext=plaintext, stream_window=1_024)
    pair.inject(pair.a, stream, STREAM, DATA, bytes(1_024 - 64))  # exactly to zero
    assert len(pair.b.events) == 1
    pair.b.reports.clear()
    pair.inject(pair.a, stream, STREAM, DATA, b"x")
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_one_event_goes_below_zero_and_holds_at_most_window_and_payload() -> None:
    pair, stream = with_stream(stream_window=1_024, max_payload=4_096)
    pair.inject(pair.a, stream, STREAM, DATA, bytes(1_024 - 65))
    pair.inject(pair.a, stream, STREAM, DATA, bytes(4_096))
    assert pair.b.session.mux.unconsumed == 1_023 + 4_096 + 64
    assert pair.b.session.mux.unconsumed < 1_024 + 4_096 + 64
    pair.b.reports.clear()
    pair.inject(pair.a, stream, 64, 1, b"x")
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_an_empty_payload_costs_too() -> None:
    pair, stream = with_stream(stream_window=1_024)
    for _ in range(16):
        pair.inject(pair.a, stream, 64, 1)
    assert len(pair.b.events) == 16  # 16 times 65 is the first sum above 1,024
    pair.b.reports.clear()
    pair.inject(pair.a, stream, 64, 1)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_chunks_and_finish_cost_nothing() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.inject(pair.a, stream, STREAM, DATA, bytes(2_000))
    for _ in range(10):
        pair.inject(pair.a, stream, SIM, CHUNK, bytes(500))
    pair.inject(pair.a, stream, STREAM, FINISH)
    assert [event.cost for event in pair.b.events] == [2_064] + [0] * 10
    assert pair.b.all(StreamFinished)


def test_our_chunks_and_finish_pass_a_stream_without_credit() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.send(stream, 1, SIM, CHUNK, bytes(500), lbm=False)
    pair.a.core.finish_stream(stream)
    pair.pump()
    assert len(pair.b.events) == 2
    assert pair.b.all(StreamFinished)


def test_padding_counts() -> None:
    pair, stream = with_stream(a={"padding": parse_padding("bucket:256")})
    pair.a.core.send(stream, 0, 64, 1, encode({256: 1}))
    pair.pump()
    assert pair.b.events[0].cost == 256 + 64


def test_stream_1_has_no_window() -> None:
    pair = open_pair(stream_window=1_024)
    for _ in range(50):
        pair.a.core.send(1, 0, 64, 1, bytes(1_000), lbm=False)
    pair.pump()
    assert len(pair.b.events) == 50
    assert {event.cost for event in pair.b.events} == {0}


def test_credit_comes_back_when_half_is_consumed_not_received() -> None:
    pair, stream = with_stream(stream_window=1_024)
    seen = watch(pair.b)
    for _ in range(4):
        pair.a.core.send_data(stream, bytes(256 - 64))
    pair.pump()
    assert len(pair.b.events) == 4
    assert not seen
    pair.b.core.consume(stream, 256)
    assert not seen
    pair.b.core.consume(stream, 256)
    assert told(seen) == [(WINDOW, {keys.STREAM: stream, keys.CREDIT: 512})]
    pair.pump()
    assert pair.a.session.mux.stream_table.open[stream].credit.left == 512
    assert pair.b.session.mux.unconsumed == 512


def test_a_long_transfer_under_a_small_window() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pieces = [bytes([n % 256]) * (n % 700 + 1) for n in range(300)]
    for piece in pieces:
        pair.a.core.send_data(stream, piece)
    received: list[bytes] = []
    while len(received) < len(pieces):
        pair.pump()
        assert pair.b.events
        assert sum(event.cost for event in pair.b.events) < 1_024 + 701 + 64
        for event in pair.b.events:
            received.append(event.payload)
            pair.b.core.consume(stream, event.cost)
        pair.b.reports.clear()
    assert received == pieces
    assert pair.b.session.mux.unconsumed == 0


def test_credit_above_the_greatest() -> None:
    pair, stream = with_stream(stream_window=1_024)
    grant: dict[int, Value] = {keys.STREAM: stream, keys.CREDIT: 2**31 - 1 - 1_024}
    pair.inject(pair.a, 0, STREAM, WINDOW, grant)
    assert pair.b.session.mux.stream_table.open[stream].credit.left == 2**31 - 1
    pair.inject(pair.a, 0, STREAM, WINDOW, {keys.STREAM: stream, keys.CREDIT: 1})
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_consuming_what_is_gone_grants_nothing() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.a.core.send_data(stream, bytes(960))
    pair.a.core.finish_stream(stream)
    pair.pump()
    seen = watch(pair.b)
    pair.b.core.consume(stream, 1_024)
    assert not seen
    assert pair.b.session.mux.unconsumed == 0


def test_windows_shrink_while_memory_is_short() -> None:
    pair = open_pair(b={"peer_memory": 16_384}, stream_window=8_192)
    for stream in (3, 5):
        pair.inject(pair.a, stream, STREAM, OPEN, LABEL)
    seen = watch(pair.b)
    pair.inject(pair.a, 3, STREAM, DATA, bytes(8_192 - 64))
    pair.b.core.consume(3, 8_192)
    assert told(seen) == [(WINDOW, {keys.STREAM: 3, keys.CREDIT: 4_096})]
    assert pair.b.session.mux.stream_table.committed == 8_192 + 4_096


def test_a_stream_that_opens_while_too_much_is_held_is_reset() -> None:
    pair = open_pair(b={"peer_memory": STREAM_WEIGHT + 1_000})
    pair.inject(pair.a, 3, STREAM, OPEN, LABEL)
    pair.inject(pair.a, 3, STREAM, DATA, bytes(1_000))
    seen = watch(pair.b)
    pair.inject(pair.a, 5, STREAM, OPEN, LABEL)
    assert told(seen) == [(RESET, {keys.STREAM: 5, keys.CODE: CloseCode.OVERLOADED})]
    assert len(pair.b.all(StreamOpened)) == 1
    assert pair.b.code == ALIVE
    pair.b.core.consume(3, 1_064)
    for stream in (3, 5):
        pair.inject(pair.a, 0, STREAM, RESET, {keys.STREAM: stream, keys.CODE: 0})
    pair.inject(pair.a, 7, STREAM, OPEN, LABEL)
    assert len(pair.b.all(StreamOpened)) == 2
    assert PEER_MEMORY == 32 * 2**20


# Sizes.


@EACH_KIND
@pytest.mark.parametrize("stream", [1, 3])
def test_a_payload_above_max_payload(plaintext: str, stream: int) -> None:
    for size in (1_024, 1_025):
        pair, _ = with_stream(plaintext=plaintext, max_payload=1_024)
        pair.inject(pair.a, stream, 64, 1, bytes(size))
        if size == 1_024:
            assert len(pair.b.events) == 1
        else:
            assert_violation(pair, pair.b, CloseCode.FRAME_TOO_LARGE)


def test_a_label_above_max_payload() -> None:
    pair = open_pair(max_payload=1_024)
    with pytest.raises(PayloadTooLargeError):
        pair.a.core.open_stream("x" * 1_024)
    assert not streams(pair.a)
    pair.inject(pair.a, 3, STREAM, OPEN, {keys.LABEL: "x" * 1_024})
    assert_violation(pair, pair.b, CloseCode.FRAME_TOO_LARGE)


@pytest.mark.parametrize("label", [None, 5, b"bytes"])
def test_a_label_that_is_no_text_never_leaves(label: Any) -> None:
    pair = open_pair()
    with pytest.raises(TypeError):
        pair.a.core.open_stream(label)
    pair.pump()
    assert not streams(pair.a)
    assert pair.a.core.state is pair.b.core.state is State.OPEN


# Fair turns.


def test_a_bulk_stream_does_not_delay_a_call() -> None:
    pair, stream = with_stream()
    for _ in range(100):
        pair.a.core.send_data(stream, bytes(1_000))
    pair.a.core.send(1, 1, SIM, 1, b"call", lbm=False)
    pair.pump()
    assert pair.b.payloads.index(b"call") == 1


def test_streams_are_served_in_turn() -> None:
    pair = open_pair()
    for name in "xyz":
        stream = pair.a.core.open_stream(name)
        for number in range(4):
            pair.a.core.send_data(stream, b"%s%d" % (name.encode(), number))
    pair.pump()
    assert b" ".join(pair.b.payloads) == b"x0 y0 z0 x1 y1 z1 x2 y2 z2 x3 y3 z3"


def test_stream_0_goes_first() -> None:
    pair, stream = with_stream()
    pair.a.core.send_data(stream, b"data")
    pair.a.core.open_stream("later")
    pair.a.core.ping(pair.now)
    pair.pump()
    assert pair.b.reports[0] == StreamOpened(stream + 2, "later")


# Notification of an empty queue.


def test_writable_is_reported_once_nothing_waits() -> None:
    pair, stream = with_stream(stream_window=1_024)
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.notify_writable(stream)
    pair.pump()
    assert not pair.a.all(StreamWritable)
    pair.b.core.consume(stream, pair.b.events[0].cost)
    pair.pump()
    assert pair.a.all(StreamWritable) == [StreamWritable(stream)]
    pair.a.core.send_data(stream, b"x")
    pair.pump()
    assert len(pair.a.all(StreamWritable)) == 1


def test_writable_at_once_when_nothing_waits() -> None:
    pair, stream = with_stream()
    pair.a.core.notify_writable(stream)
    pair.pump()
    assert pair.a.all(StreamWritable) == [StreamWritable(stream)]


@pytest.mark.parametrize("who", ["a", "b"])
def test_who_waits_is_told_of_a_reset(who: str) -> None:
    pair, stream = with_stream(stream_window=1_024)
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.notify_writable(stream)
    pair.pump()
    getattr(pair, who).core.reset_stream(stream, 64)
    pair.pump()
    assert pair.a.all(StreamWritable) == [StreamWritable(stream)]


def test_writable_with_credit_waits_for_it() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.a.core.send_data(stream, bytes(2_000))
    assert pair.a.core.has_credit(stream)
    pair.pump()
    assert not pair.a.core.has_credit(stream)
    pair.a.core.notify_writable(stream, credit=True)
    pair.pump()
    assert not pair.a.all(StreamWritable)
    pair.b.core.consume(stream, pair.b.events[0].cost)
    pair.pump()
    assert pair.a.all(StreamWritable) == [StreamWritable(stream)]
    assert pair.a.core.has_credit(stream)
    pair.a.core.notify_writable(stream, credit=True)
    pair.pump()
    assert len(pair.a.all(StreamWritable)) == 2


@pytest.mark.parametrize("end", ["finish_stream", "reset_stream"])
def test_who_waits_for_credit_is_told_of_the_end(end: str) -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.a.core.send_data(stream, bytes(2_000))
    pair.pump()
    pair.a.core.notify_writable(stream, credit=True)
    if end == "finish_stream":
        pair.a.core.finish_stream(stream)
    else:
        pair.b.core.reset_stream(stream, 64)
    pair.pump()
    assert pair.a.all(StreamWritable) == [StreamWritable(stream)]
    assert not pair.a.core.has_credit(stream)
    pair.a.core.notify_writable(stream, credit=True)  # the stream can't become writable
    pair.pump()
    assert len(pair.a.all(StreamWritable)) == 2


def test_writable_does_not_wait_for_the_other_sides_seal() -> None:
    pair, stream = with_stream(deliver="sealed", stream_window=1_024)
    pair.a.core.send_data(stream, b"x")
    pair.a.core.notify_writable(stream)
    pair.a.take(pair.now)
    pair.a.collect(pair.now)
    assert pair.a.all(StreamWritable) == [StreamWritable(stream)]


def test_events_that_wait_for_a_seal_have_an_account_that_follows_the_limits() -> None:
    pair = open_pair(seal_events=8, b={"deliver": "sealed", "peer_memory": 65_536})
    account = pair.b.core.unsealed
    for number in range(3):
        pair.inject(pair.a, 1, 64, 1, bytes(20_000))
        assert account.held == (number + 1) * (20_000 + EVENT_WEIGHT)
    pair.inject(pair.a, 1, 64, 1, b"x", sealed=True)
    assert (account.held, len(pair.b.all(Event))) == (0, 4)
    for _ in range(8):
        pair.inject(pair.a, 1, 64, 1, bytes(1 << 20))
        assert pair.b.code == ALIVE
    assert account.held <= account.limit
    pair.inject(pair.a, 1, 64, 1, b"x")  # one more than is allowed without a seal
    assert pair.b.code == CloseCode.SEAL_VIOLATION
    pair.b.core.receive_eof(pair.now)
    assert account.held == 0


# Invalid local calls.


def test_sending_where_one_cannot() -> None:
    pair, stream = with_stream()
    pair.a.core.finish_stream(stream)
    for wrong in (stream, 2, 5, 2**32):
        with pytest.raises(LocalProtocolError):
            pair.a.core.send_data(wrong, b"x")
        with pytest.raises(LocalProtocolError):
            pair.a.core.send(wrong, 0, 64, 1, b"x", lbm=False)
        with pytest.raises(LocalProtocolError):
            pair.a.core.finish_stream(wrong)
    for on in (0, 1):
        with pytest.raises(LocalProtocolError):
            pair.a.core.send_data(on, b"x")
    with pytest.raises(LocalProtocolError):
        pair.a.core.send_data(stream, b"")
    pair.pump()
    assert pair.b.reports == [StreamFinished(stream)]


def test_the_bound_of_a_connection_is_firm() -> None:
    pair = open_pair(b={"peer_memory": 10 * STREAM_WEIGHT + 4_096}, stream_window=2_048)
    opened = [pair.a.core.open_stream("app/test") for _ in range(10)]
    pair.pump()
    for stream in opened:
        pair.a.core.send_data(stream, bytes(2_000))
    pair.pump()
    held = sum(event.cost for event in pair.b.events)
    assert held == 2 * 2_064 == pair.b.session.mux.unconsumed  # one event above the limit
    resets = {report.stream: report.code for report in pair.a.all(StreamReset)}
    assert resets == dict.fromkeys(opened[2:], CloseCode.OVERLOADED)
    assert {report.stream for report in pair.b.all(StreamReset)} == set(opened[2:])
    assert streams(pair.b) == set(opened[:2]) == streams(pair.a)
    for event in pair.b.events:
        pair.b.core.consume(event.stream, event.cost)
    pair.a.core.send_data(opened[0], b"goes on")
    pair.pump()
    assert pair.b.events[-1].payload == b"goes on"


def test_unassigned_codes_are_not_for_reset() -> None:
    pair, stream = with_stream()
    for code in (-1, 14, 31, 36, 63, 2**32):
        with pytest.raises(ValueError, match="code"):
            pair.a.core.reset_stream(stream, code)
    assert streams(pair.a) == {stream}


def test_a_window_that_a_request_named_holds_for_the_stream_that_answers_it() -> None:
    pair = open_pair(stream_window=2_048)
    pair.b.session.mux.windows["topic:x"] = 8_192
    stream = pair.a.core.open_stream("topic:x", credit=8_192)
    other = pair.a.core.open_stream("topic:y")
    for _ in range(4):
        pair.a.core.send_data(stream, bytes(2_000))
        pair.a.core.send_data(other, bytes(2_000))
    pair.pump()
    assert [event.stream for event in pair.b.events].count(stream) == 4
    assert [event.stream for event in pair.b.events].count(other) == 1
    # The window was smaller after all: credit is granted accordingly.
    pair.b.session.mux.resize(stream, 1_024)
    granted = watch(pair.b)
    for event in pair.b.events:
        pair.b.core.consume(event.stream, event.cost)
    grants = [cells[keys.CREDIT] for _, cells in told(granted) if cells[keys.STREAM] == stream]
    assert grants == [2_064] * 4
    pair.b.session.mux.resize(99, 1_024)  # closed or never opened
    pair.a.core.finish_stream(stream)
    pair.pump()
    pair.b.session.mux.resize(stream, 4_096)  # no longer read
    assert pair.b.session.mux.stream_table.committed == 2_048


# Streams of requests.


def test_credit_for_the_chunks_of_a_request_is_told_to_the_other_side() -> None:
    pair, stream = with_stream()
    pair.a.core.streams.grant(1, 7, 500)
    pair.b.core.streams.grant(stream, 65_535, 2**31 - 1)
    pair.pump()
    assert pair.b.reports == [WindowReceived(1, 7, 500)]
    assert pair.a.reports == [WindowReceived(stream, 65_535, 2**31 - 1)]


def test_a_stream_that_is_held_comes_after_the_event_that_releases_it() -> None:
    pair, stream = with_stream()
    core = pair.a.core
    core.streams.hold(stream)
    core.send_data(stream, b"held")
    core.finish_stream(stream)
    pair.pump()
    assert pair.b.reports == []
    for number in (1, 2):
        core.send(1, number, SIM, 5, b"\xa0", releases=stream * (number == 2))
    pair.pump()
    assert [getattr(report, "async_id", None) for report in pair.b.reports] == [1, 2, 0, None]
    assert [report.stream for report in pair.b.reports if hasattr(report, "stream")] == [
        1,
        1,
        stream,
        stream,
    ]


def test_what_is_held_may_be_dropped_or_let_go() -> None:
    pair, stream = with_stream()
    core = pair.a.core
    core.streams.hold(stream)
    core.send_data(stream, b"dropped")
    core.streams.drop_waiting(stream)
    core.streams.hold(stream)
    core.send_data(stream, b"sent")
    core.streams.release(stream)
    pair.pump()
    assert pair.b.reports == [Event(stream, 0, STREAM, DATA, b"sent", 68)]


@pytest.mark.parametrize(("padding", "size"), [("off", 4), ("bucket:512", 512)])
def test_sending_tells_what_the_payload_costs(padding: str, size: int) -> None:
    pair, stream = with_stream(padding=parse_padding(padding))
    payload = encode({keys.DATA: b"x"})
    for on in (1, stream):
        assert pair.a.core.send(on, 1, SIM, CHUNK, payload) == size
    pair.pump()
    received = [report for report in pair.b.reports if isinstance(report, Event)]
    assert [len(event.payload) for event in received] == [size, size]
