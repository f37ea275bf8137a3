"""The record log of one run: sessions, blocks and segment boundaries, created in the loop's thread.

A block and its checkpoints are created in a separate loop callback, never from within a core, so
that each session is between two events.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from parley._node.journal import keys
from parley._node.journal.options import JournalOptions
from parley._node.journal.record_types import SegmentHead, encode_block
from parley._node.journal.records import encode_record
from parley._node.journal.segment_writer import NEVER, RecordBuffer, SegmentBoundary
from parley._node.journal.segments import SegmentName, run_start
from parley._node.transport.loop import Loop, Timer

_LAST_SESSION: Final = 2**32 - 1


class LoggedSession(Protocol):
    """An open session of the log."""

    def checkpoint(self) -> bytes:
        """Return the body of the session's checkpoint."""

    def lost(self) -> None:
        """End the session, because the journal ends."""


class RecordLog:
    """The records of one run, whose first segment begins with `head`.

    The next record after a segment reaches its size or age limit closes the segment. `next_mark`
    returns another position at which the buffer calls `on_mark_reached`.
    """

    def __init__(
        self,
        buffer: RecordBuffer,
        head: SegmentHead,
        loop: Loop,
        settings: JournalOptions,
        next_mark: Callable[[], int] = lambda: NEVER,
    ) -> None:
        self.buffer = buffer
        self.clock = settings.clock
        self._head = head
        self._loop = loop
        self._segment_size = settings.segment_size
        self._segment_age = settings.segment_age
        self._sessions: dict[int, LoggedSession] = {}
        self.next_session = 0
        self._began = 0  # The position of the segment's first byte.
        self.segment_due = NEVER  # The position at which the segment is closed.
        self._blocks: list[int] = []
        self._next_block = 0
        self._rolling = True
        self._ended = False
        self._age_timer: Timer | None = None
        self._next_mark = next_mark
        buffer.on_mark_reached = self._mark_reached

    @property
    def name(self) -> SegmentName:
        return SegmentName(self._head.node_id.text, run_start(self._head.start), self._head.number)

    @property
    def sessions(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    def begin(self) -> None:
        self._open_segment()
        self._rolling = False
        self.plan()

    def end(self) -> None:
        """End all open sessions and the segment."""
        if self._ended:
            return
        for session in list(self._sessions.values()):
            session.lost()
        self._rotate(None)
        self.stop()

    def stop(self) -> None:
        self._ended = self._rolling = True
        self.plan()
        self.buffer.close()
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None

    def enter(self, session: LoggedSession) -> int:
        """Add a session and return its number."""
        number = self.next_session
        if number > _LAST_SESSION:
            raise OverflowError("a run of a journal cannot have more than 2^32 sessions")
        self.next_session = number + 1
        self._sessions[number] = session
        return number

    def leave(self, number: int) -> None:
        self._sessions.pop(number, None)

    def record(self, kind: int, body: bytes) -> int:
        """Append a record and return its time."""
        time = self.clock()
        buffer = self.buffer
        buffer.put(encode_record(kind, time, body))
        if buffer.appended >= buffer.mark:
            buffer.on_mark_reached()
        return time

    def plan(self) -> None:
        """Set the position at which the buffer calls `on_mark_reached` next."""
        mark = NEVER if self._ended else self._next_mark()
        if not self._rolling:
            mark = min(mark, self._next_block, self.segment_due)
        self.buffer.mark = mark

    def _mark_reached(self) -> None:
        if not self._rolling and self.buffer.appended >= min(self._next_block, self.segment_due):
            self._rolling = True
            self._loop.call_soon(self.roll)
        self.plan()

    def roll(self) -> None:
        if self._ended:
            return
        if self.buffer.appended >= self.segment_due:
            self._head = replace(self._head, number=self._head.number + 1)
            self._rotate(self.name)
            self._open_segment()
        else:
            self._open_block()
        self._rolling = False
        self.plan()

    def _rotate(self, following: SegmentName | None) -> None:
        buffer = self.buffer
        buffer.append(SegmentBoundary(tuple(self._blocks), buffer.parts, following))
        if buffer.idle:
            buffer.wake()

    def _open_segment(self) -> None:
        self._blocks.clear()
        self._began = self.buffer.appended
        self.segment_due = self._began + self._segment_size
        if self._age_timer is not None:
            self._age_timer.cancel()
        self._age_timer = self._loop.call_at(self._loop.now() + self._segment_age, self._aged)
        self.record(keys.SEGMENT, self._head.encode())
        self._open_block()

    def _open_block(self) -> None:
        buffer = self.buffer
        began = buffer.appended
        self._blocks.append(began - self._began)
        sessions = self._sessions.items()
        checkpoints = [session.checkpoint() for _, session in sessions]
        self.record(keys.BLOCK, encode_block(len(self._blocks) - 1, len(checkpoints)))
        for body in checkpoints:
            self.record(keys.CHECKPOINT, body)
        taken = buffer.appended - began
        self._next_block = began + max(keys.BLOCK_SIZE, taken * keys.CHECKPOINT_PART)

    def _aged(self) -> None:
        self._age_timer = None
        self.segment_due = 0  # The next record closes the segment.
        self.plan()
