"""Notes that wait for their reader: acknowledged when there is room, or in time."""

import pytest

from node.dialects.core import NEVER
from node.dialects.simproto.subscriptions import NoteQueue

NOTE = b"x" * 36  # 100 bytes of cost


class Wait:
    """A queue of three notes' window, and what it acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.told = 0
        self.queue = NoteQueue(300, 10.0, self.acknowledged.append, self._tell)

    def _tell(self) -> None:
        self.told += 1


def test_notes_within_the_window_are_acknowledged_as_they_come() -> None:
    wait = Wait()
    for dialog in range(5):
        assert wait.queue.put(NOTE, dialog, 0.0)
    assert wait.acknowledged == [0, 1, 2]
    assert wait.told == len(wait.queue) == 5
    assert wait.queue.deadline == 10.0


def test_reading_makes_room() -> None:
    wait = Wait()
    for dialog in range(6):
        wait.queue.put(bytes([dialog]) + NOTE[1:], dialog, 0.0)
    for read in range(6):
        assert wait.queue.take()[0] == read
        assert wait.acknowledged == list(range(min(6, 4 + read)))
    assert wait.queue.deadline == NEVER
    with pytest.raises(IndexError):
        wait.queue.take()


def test_no_acknowledgement_is_held_for_ever() -> None:
    wait = Wait()
    for dialog in range(5):
        wait.queue.put(NOTE, dialog, float(dialog))
    wait.queue.handle_deadline(12.9)
    assert wait.acknowledged == [0, 1, 2]
    wait.queue.handle_deadline(13.0)
    assert wait.acknowledged == [0, 1, 2, 3]
    assert wait.queue.deadline == 14.0
    wait.queue.take()
    assert wait.acknowledged == [0, 1, 2, 3]  # four wait still


def test_twice_the_window_is_all() -> None:
    wait = Wait()
    assert [wait.queue.put(NOTE, dialog, 0.0) for dialog in range(7)] == [True] * 6 + [False]
    assert len(wait.queue) == 6


def test_a_note_longer_than_the_window_comes_alone() -> None:
    wait = Wait()
    assert wait.queue.put(b"x" * 1_000, 1, 0.0)
    assert wait.acknowledged == [1]
    assert not wait.queue.put(NOTE, 2, 0.0)
    wait.queue.take()
    wait.queue.put(NOTE, 3, 0.0)
    assert wait.queue.put(b"x" * 400, 4, 0.0)
    assert wait.acknowledged == [1, 3]
    wait.queue.take()
    assert wait.acknowledged == [1, 3, 4]  # the next to be read


def test_leaving_acknowledges_what_came() -> None:
    wait = Wait()
    for dialog in range(5):
        wait.queue.put(NOTE, dialog, 0.0)
    wait.queue.close()
    assert wait.acknowledged == [0, 1, 2, 3, 4]
    assert len(wait.queue) == 0
    assert wait.queue.deadline == NEVER
