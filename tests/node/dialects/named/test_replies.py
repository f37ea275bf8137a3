"""What came in reply to one event of ours: in order, bounded, and ended once."""

import pytest

from node.dialects.named.codec import EventType, encode_error
from node.dialects.named.replies import REPLY_COST, Replies, RepliesEnd
from tests.node.dialects.named.events import reply


class Reader:
    """Replies of which at most `limit` bytes wait; `changes` counts what it was told."""

    def __init__(self, limit: int = 10_000) -> None:
        self.changes = 0
        self.replies = Replies(limit, self._change)

    def _change(self) -> None:
        self.changes += 1

    def read(self) -> list[bytes]:
        return [self.replies.take().data for _ in range(len(self.replies))]


def test_replies_are_read_in_their_order() -> None:
    reader = Reader()
    for data in (b"1", b"2", b"3"):
        reader.replies.put(reply(1, data))
    assert (reader.changes, reader.replies.end) == (3, None)
    assert reader.read() == [b"1", b"2", b"3"]
    with pytest.raises(IndexError):
        reader.replies.take()


@pytest.mark.parametrize(("data", "read"), [(b"last", [b"last"]), (b"", [])])
def test_an_end_is_a_reply_if_it_has_data(data: bytes, read: list[bytes]) -> None:
    reader = Reader()
    reader.replies.put(reply(1, data, "end", EventType.END))
    assert reader.replies.end is RepliesEnd.FINISHED
    assert (reader.changes, reader.read()) == (1, read)


def test_a_failure_has_the_code_and_text_that_it_came_with() -> None:
    reader = Reader()
    reader.replies.put(reply(1, b"before"))
    reader.replies.fail(reply(1, encode_error(500, "boom")))
    assert reader.replies.end is RepliesEnd.FAILED
    assert (reader.replies.code, reader.replies.text) == (500, "boom")
    assert reader.read() == [b"before"]


def test_a_failure_that_does_not_say_what_is_one() -> None:
    reader = Reader()
    reader.replies.fail(reply(1, b"?"))
    assert (reader.replies.end, reader.replies.code) == (RepliesEnd.FAILED, 0)


def test_what_waits_is_bounded() -> None:
    one = reply(1, b"0" * 10)
    size = 10 + len(one.name) + REPLY_COST
    reader = Reader(3 * size)
    for _ in range(100):
        reader.replies.put(one)
        reader.replies.take()
    for _ in range(3):
        reader.replies.put(one)
    assert (reader.replies.size, reader.replies.end) == (3 * size, None)
    reader.replies.put(one)
    assert reader.replies.end is RepliesEnd.OVERFLOW
    assert (len(reader.replies), reader.replies.size) == (0, 0)


def test_empty_replies_count_too() -> None:
    reader = Reader(1_024)
    while reader.replies.end is None:
        reader.replies.put(reply(1))
    assert reader.changes <= 1_024 // REPLY_COST + 1


def test_the_first_end_is_the_end() -> None:
    reader = Reader()
    reader.replies.finish(RepliesEnd.LOST, 3, "gone")
    reader.replies.finish(RepliesEnd.CLOSED)
    assert (reader.replies.end, reader.replies.code) == (RepliesEnd.LOST, 3)
    assert reader.changes == 1


def test_what_nobody_wants_is_forgotten() -> None:
    reader = Reader()
    reader.replies.put(reply(1, b"1"))
    reader.replies.finish(RepliesEnd.CLOSED)
    assert (len(reader.replies), reader.replies.size) == (0, 0)
