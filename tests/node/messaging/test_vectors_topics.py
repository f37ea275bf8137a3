"""Vectors of topics that remember: where a subscriber begins, and what a reader takes."""

import pytest

from parley._lbm.codec import Value, encode_value
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.inbox import NoteInbox, NumberedInbox
from parley._node.messaging.topic_history import (
    TopicHistory,
    TopicPosition,
    read_beginning,
    read_position,
)
from parley._node.protocol import event_types
from parley._node.protocol.memory_budget import MemoryBudget
from tests.vectors.load import Vector, of_kind, unhex, vectors


def begin(vector: Vector) -> dict[str, object]:
    """What a publisher answers."""
    kept = TopicHistory(
        unhex(vector["epoch"]), max(1, vector["last"] + 1 - vector["first"]), 1 << 20
    )
    for number in range(1, vector["last"] + 1):
        kept.add(encode_value(number), None)
    while kept.first < vector["first"]:
        kept.forget_oldest()
    cells = event_types.SUBSCRIBE.read(unhex(vector["subscribe"]))
    position, recovered = kept.begin(read_position(cells))
    follow = list(range(position.number + 1, kept.last + 1))
    return {
        "topic_epoch": position.epoch.hex(),
        "number": position.number,
        "recovered": recovered,
        "follow": follow,
    }


def read(vector: Vector) -> tuple[NoteInbox, list[Value]]:
    """Return a reader that received the events, and the notes it accepted."""
    after = vector["after"] and TopicPosition(unhex(vector["after"][0]), vector["after"][1])
    begins = read_beginning(event_types.RESULT.read(unhex(vector["result"])))
    account = MemoryBudget(1 << 20)
    box = NoteInbox(lambda: None, lambda cost, count: None, account)
    if begins is not None:
        box = NumberedInbox(lambda: None, lambda cost, count: None, account, begins, after)
    taken: list[Value] = []
    for kind, payload in vector["events"]:
        box.put(kind, unhex(payload), 1)
    while box:
        taken += box.take()[0]
    return box, taken


@vectors("topics", of_kind("begin"), fails=False)
def test_where_a_subscriber_begins(vector: Vector) -> None:
    assert begin(vector) == vector["expected"]


@vectors("topics", of_kind("begin"), fails=True)
def test_positions_that_may_not_be(vector: Vector) -> None:
    with pytest.raises(LbmDecodeError):
        begin(vector)


@vectors("topics", of_kind("read"), fails=False)
def test_what_a_reader_takes(vector: Vector) -> None:
    box, taken = read(vector)
    expected = vector["expected"]
    assert (taken, box.malformed) == (expected["taken"], 0)
    if isinstance(box, NumberedInbox):
        found = (box.gaps, box.number)
        assert found == (int(expected["gaps"]), int(expected["number"]))
    else:
        assert "number" not in expected


@vectors("topics", of_kind("read"), fails=True)
def test_what_no_reader_takes(vector: Vector) -> None:
    if vector["events"]:
        box, taken = read(vector)
        assert box.malformed == 1
        assert len(taken) == len(vector["events"]) - 1
    else:
        with pytest.raises(LbmDecodeError):
            read(vector)
