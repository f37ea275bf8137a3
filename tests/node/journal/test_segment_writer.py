"""Tests of node/journal/segment_writer.py: partial and failed writes."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.journal import keys
from parley._node.journal import segment_writer as writer
from parley._node.journal.options import JournalOptions, parse_auditors
from parley._node.journal.record_types import SegmentEnd
from parley._node.journal.records import Record, encode_record, read_records
from parley._node.journal.segment_writer import (
    AT_ONCE,
    RecordBuffer,
    SegmentBoundary,
    SegmentWriter,
)
from parley._node.journal.segments import SegmentName, run_start

AUDITORS = parse_auditors(AuditorPrivateKey.create().public)
NAME = SegmentName(Identity.create().node_id.text, run_start(0), 0)
WRITE = os.writev


class Scene:
    """A writer and its notifications."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.buffer = RecordBuffer()
        self.failed = Event()
        settings = JournalOptions(
            directory, AUDITORS, 2**26, 3600.0, 2**23, "interval", 1.0, "alarm", lambda: 7
        )
        self.writer = SegmentWriter(self.buffer, settings, lambda: None, self.failed.set)

    def end(self) -> None:
        """End the segment and the thread."""
        self.buffer.append(SegmentBoundary((), self.buffer.parts, None))
        self.buffer.wake()
        assert self.writer.join(10)

    def records(self) -> list[Record]:
        """Return the records of the only segment."""
        (path,) = self.directory.iterdir()
        return list(read_records(path.read_bytes()))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.end()


def writing(taken: Callable[[list[bytes]], int | OSError]) -> Callable[[int, list[bytes]], int]:
    """Return a `writev` that accepts only the first bytes, and may then fail."""

    def writev(file: int, records: list[bytes]) -> int:
        size = taken(records)
        if isinstance(size, OSError):
            raise size
        return os.write(file, b"".join(records)[:size])

    return writev


def eventually(true: Callable[[], bool]) -> None:
    """Wait for the writer's thread."""
    for _ in range(10_000):
        if true():
            return
        time.sleep(0.001)
    raise AssertionError("the writer did not come on")


def put(scene: Scene, count: int) -> None:
    """Put records of increasing sizes, and one in two parts."""
    for number in range(count):
        scene.buffer.put(encode_record(200, number, bytes(number)))
    record = encode_record(201, 1, bytes(5000))
    scene.buffer.put(record[:20])
    scene.buffer.parts += 1
    scene.buffer.put(record[20:])


@pytest.mark.parametrize("part", [0, 1, 30, 5000])
def test_partial_write_is_continued(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(os, "writev", writing(lambda records: part))
    scene.writer.start(NAME)
    put(scene, 50)
    scene.end()
    records = scene.records()
    assert [record.kind for record in records] == [200] * 50 + [201, keys.SEGMENT_END]
    assert SegmentEnd.parse(records[-1].body).records == 51


@pytest.mark.parametrize(("size", "pieces"), [(0, 1), (800, 1), (1100, 20), (70_000, 20)])
def test_small_records_are_written_as_one_piece_and_large_ones_uncopied(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, size: int, pieces: int
) -> None:
    calls: list[list[bytes]] = []

    def writev(file: int, records: list[bytes]) -> int:
        calls.append(list(records))
        return WRITE(file, records)

    monkeypatch.setattr(os, "writev", writev)
    records = [encode_record(200, number, bytes(size)) for number in range(20)]
    for record in records:
        scene.buffer.put(record)
    scene.writer.start(NAME)
    eventually(lambda: scene.buffer.written == scene.buffer.appended)
    assert len(calls[0]) == pieces
    assert b"".join(calls[0]) == b"".join(records)
    assert scene.buffer.records == 20


def test_sync_does_not_wait_for_gathering(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LINGER", 3600.0)
    buffer = scene.buffer
    buffer.put(encode_record(200, 0, b""))
    scene.writer.start(NAME)
    eventually(lambda: buffer.written == buffer.appended)
    buffer.put(encode_record(200, 1, b""))
    buffer.wake()
    eventually(lambda: buffer.written == buffer.appended)


def test_many_records_are_written_in_several_calls(scene: Scene) -> None:
    put(scene, AT_ONCE + 10)
    scene.writer.start(NAME)
    scene.end()
    assert len(scene.records()) == AT_ONCE + 12


@pytest.mark.parametrize(("part", "whole"), [(0, 0), (16, 0), (17, 17), (40, 35), (1000, 54)])
def test_a_part_of_a_record_is_cut_off_when_the_rest_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, part: int, whole: int
) -> None:
    def fail(file: int, rest: object) -> int:
        raise OSError(28, "No space left on device")

    def writev(file: int, records: list[bytes]) -> int:
        data = b"".join(records)
        if len(data) > 1000:
            write(file, data[:part])
            monkeypatch.setattr(os, "write", fail)
            return part
        return WRITE(file, records)

    write = os.write
    monkeypatch.setattr(os, "writev", writev)
    put(scene, 3)
    scene.writer.start(NAME)
    assert scene.failed.wait(10)
    assert scene.buffer.failed is not None
    records = scene.records()
    assert {record.status for record in records} <= {"ok"}
    assert sum(record.size for record in records) == whole
