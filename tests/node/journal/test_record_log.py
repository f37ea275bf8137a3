"""Tests of node/journal/record_log.py: when blocks and segments begin."""

from pathlib import Path
from typing import cast

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.journal import keys
from parley._node.journal.options import JournalOptions, parse_auditors
from parley._node.journal.record_log import RecordLog
from parley._node.journal.record_types import SegmentHead, parse_block
from parley._node.journal.records import encode_record, read_records
from parley._node.journal.segment_writer import NEVER, RecordBuffer, SegmentBoundary
from parley._node.transport.loop import Loop
from tests.node.transport.test_driver import FakeLoop

NODE = Identity.create().node_id
AUDITORS = parse_auditors(AuditorPrivateKey.create().public)


class FakeSession:
    """A session with a checkpoint of a given size."""

    def __init__(self, log: RecordLog, size: int) -> None:
        self.log = log
        self.size = size
        self.number = log.enter(self)
        self.ended = False

    def checkpoint(self) -> bytes:
        return bytes(self.size)

    def lost(self) -> None:
        self.ended = True
        self.log.leave(self.number)


class Scene:
    """A log, its loop and its buffer."""

    def __init__(self, segment_size: int = 2**26, segment_age: float = 3600.0) -> None:
        self.loop = FakeLoop()
        self.buffer = RecordBuffer()
        settings = JournalOptions(
            Path("."), AUDITORS, segment_size, segment_age, 2**23, "never", 1.0, "alarm", lambda: 7
        )
        head = SegmentHead(NODE, 0, 0, tuple(map(bytes, AUDITORS)), "test")
        self.log = RecordLog(self.buffer, head, cast(Loop, self.loop), settings)
        self.log.begin()

    def record(self, size: int) -> None:
        """Record so many bytes."""
        self.log.record(200, bytes(size - len(encode_record(200, 0, b""))))

    def segments(self) -> list[list[int]]:
        """Return the kinds of records, segment by segment."""
        segments: list[list[int]] = [[]]
        for item in self.buffer.pending:
            if isinstance(item, SegmentBoundary):
                segments.append([])
            else:
                segments[-1] += [record.kind for record in read_records(item)]
        return segments


def test_block_begins_in_a_separate_loop_callback() -> None:
    scene = Scene()
    session = FakeSession(scene.log, 100)
    scene.record(keys.BLOCK_SIZE)
    scene.record(100)
    assert scene.segments() == [[keys.SEGMENT, keys.BLOCK, 200, 200]]
    scene.loop.turn()
    assert scene.segments()[0][4:] == [keys.BLOCK, keys.CHECKPOINT]
    blocks = [item for item in scene.buffer.pending if not isinstance(item, SegmentBoundary)]
    assert parse_block(next(read_records(blocks[4])).body) == (1, 1)
    scene.log.leave(session.number)
    scene.record(keys.BLOCK_SIZE)
    scene.loop.turn()
    assert scene.segments()[0][6:] == [200, keys.BLOCK]


def test_checkpoints_take_a_sixteenth_at_most() -> None:
    scene = Scene()
    for _ in range(4):
        FakeSession(scene.log, keys.BLOCK_SIZE // 16)
    scene.record(keys.BLOCK_SIZE)
    scene.loop.turn()
    began = len(scene.segments()[0])
    for _ in range(3):
        scene.record(keys.BLOCK_SIZE)
        scene.loop.turn()
    assert scene.segments()[0][began:] == [200, 200, 200]
    scene.record(keys.BLOCK_SIZE)
    scene.loop.turn()
    assert scene.segments()[0][began + 3 :] == [200, keys.BLOCK] + [keys.CHECKPOINT] * 4


def test_a_segment_is_closed_when_it_is_long_enough() -> None:
    scene = Scene(segment_size=8192)
    scene.record(8192)
    scene.loop.turn()
    assert scene.segments() == [[keys.SEGMENT, keys.BLOCK, 200], [keys.SEGMENT, keys.BLOCK]]
    (turn,) = [item for item in scene.buffer.pending if isinstance(item, SegmentBoundary)]
    assert turn.following == scene.log.name
    assert scene.log.name.number == 1
    first = cast(bytes, scene.buffer.pending[0])
    assert turn.blocks == (len(first),)


def test_an_old_segment_is_closed_at_the_next_record_and_no_earlier() -> None:
    scene = Scene(segment_age=10.0)
    scene.loop.move(30)
    assert len(scene.segments()) == 1
    scene.record(50)
    scene.loop.turn()
    assert scene.segments() == [[keys.SEGMENT, keys.BLOCK, 200], [keys.SEGMENT, keys.BLOCK]]
    assert scene.loop.set_timers == [scene.loop.time + 10.0]


def test_end_ends_open_sessions_once() -> None:
    scene = Scene()
    session = FakeSession(scene.log, 10)
    scene.record(keys.BLOCK_SIZE)  # A block is due.
    scene.log.end()
    scene.log.end()
    scene.loop.turn()
    scene.record(50)
    assert session.ended
    assert scene.log.sessions == 0
    assert scene.segments() == [[keys.SEGMENT, keys.BLOCK, 200], []]
    assert scene.buffer.mark == NEVER
    assert scene.loop.set_timers == []


def test_number_of_sessions_in_a_run_is_bounded() -> None:
    scene = Scene()
    assert [FakeSession(scene.log, 1).number for _ in range(3)] == [0, 1, 2]
    scene.log.next_session = 2**32
    with pytest.raises(OverflowError):
        FakeSession(scene.log, 1)
