"""Closes segments that a crash left open (docs/journal.md, "Recovery").

Each step is on the disk before the next begins, so that recovery can restart after a crash with the
same result. Bytes that are cut off are saved. The caller has locked the journal.
"""

import os
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from parley._node.journal import keys
from parley._node.journal.errors import JournalFailedError
from parley._node.journal.record_types import SegmentEnd
from parley._node.journal.records import BAD_CRC, OK, encode_record
from parley._node.journal.segments import (
    CHUNK,
    CLOSED,
    LIVE,
    TORN,
    SegmentName,
    closed_path,
    list_segments,
    parse_name,
    read_range,
    sync_directory,
)

_PART: Final = ".part"  # The copy of a torn end before all of it is on the disk.


class Recovered(NamedTuple):
    """A segment that was closed: its records, how many have a wrong CRC, and the bytes cut off."""

    name: SegmentName
    records: int
    damaged: int
    cut: int


class _Whole(NamedTuple):
    """The contents of a segment up to `end`, the end of its last complete record."""

    end: int
    records: int
    damaged: int
    blocks: tuple[int, ...]
    closed: bool


def recover_left(directory: str | Path, node: str, time: int) -> list[Recovered]:
    """Close all open segments of a node, given as text, in order; raise the errors of `recover`."""
    left = [segment for segment in list_segments(directory, node) if segment.is_live]
    return [recover(segment.path, time) for segment in left]


def recover(path: Path, time: int) -> Recovered:
    """Close a segment whose name ends in `.open`. Its `segment end` gets `time`, in ns.

    Raises:
        JournalFailedError: the segment cannot be closed (the disk is full, permission is missing,
            or a closed segment of that number exists); no data is lost.
    """
    name = parse_name(path)
    if name is None or name.state != LIVE:
        raise JournalFailedError(f"cannot close segment {path.name!r}: it is not an open segment")
    try:
        return _recover(path, name._replace(state=CLOSED), time)
    except OSError as error:
        raise JournalFailedError(f"cannot close segment {path.name!r}: {error}") from error


def _recover(path: Path, name: SegmentName, time: int) -> Recovered:
    if closed_path(path).exists():
        raise JournalFailedError(f"cannot close segment {path.name!r}: '{name}' already exists")
    whole = _walk(path)
    torn = path.with_name(str(name._replace(state=TORN)))
    with path.open("r+b", buffering=0) as file:
        tail = file.seek(0, os.SEEK_END) - whole.end
        # An existing `.torn` file already has all bytes to save. The bytes after the last complete
        # record are then part of a `segment end` that an earlier recovery began to write.
        if tail and not torn.exists():
            _keep(file, whole.end, torn)
        if tail:
            os.ftruncate(file.fileno(), whole.end)
            os.fsync(file.fileno())  # No byte of the tail may reappear after the bytes that follow.
        cut = torn.stat().st_size if torn.exists() else 0
        if not whole.closed:
            body = SegmentEnd(whole.records, whole.blocks, cut).encode()
            file.seek(whole.end)
            _write(file, encode_record(keys.SEGMENT_END, time, body))
        os.fsync(file.fileno())
    os.rename(path, closed_path(path))
    sync_directory(path.parent)
    return Recovered(name, whole.records, whole.damaged, cut)


def _walk(path: Path) -> _Whole:
    """Walk over complete and damaged records, without counting damaged ones at the end."""
    end = records = damaged = walked = bad = 0
    blocks: list[int] = []
    closed = False
    for record in read_range(path, 0, path.stat().st_size):
        if record.status not in (OK, BAD_CRC):
            break
        walked += 1
        if record.status == BAD_CRC:
            bad += 1
            continue
        closed = record.kind == keys.SEGMENT_END
        if record.kind == keys.BLOCK:
            blocks.append(record.offset)
        end, records, damaged = record.offset + record.size, walked - closed, bad
    return _Whole(end, records, damaged, tuple(blocks), closed)


def _keep(file: BinaryIO, start: int, torn: Path) -> None:
    """Copy `file` from `start` on. The copy gets its name when it is complete."""
    part = torn.with_name(torn.name + _PART)
    file.seek(start)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb", buffering=0) as copy:
        while chunk := file.read(CHUNK):
            _write(copy, chunk)
        os.fsync(copy.fileno())
    os.rename(part, torn)
    sync_directory(torn.parent)


def _write(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]
