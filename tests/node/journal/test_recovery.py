"""Recovery of segments that a crash left open, and crashes during the recovery."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from parley._node.journal.errors import JournalFailedError
from parley._node.journal.recovery import Recovered, recover, recover_left
from parley._node.journal.segments import (
    LIVE,
    TORN,
    list_segments,
    list_torn,
    read_footer,
    read_range,
)
from tests.node.journal.small_segments import (
    NODE,
    NOW,
    closed_segment,
    end_of,
    event,
    name_of,
    records_of,
    write,
    write_open,
)

LATER = NOW + 10**9


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def closed_as(records: list[bytes], torn: bytes = b"") -> dict[str, bytes]:
    """Return the files that recovery should make of complete records and a torn end."""
    data = b"".join([*records, end_of(records, cut=len(torn), time=LATER)])
    return {str(name_of()): data} | ({str(name_of(state=TORN)): torn} if torn else {})


def test_every_truncation(tmp_path: Path) -> None:
    records = records_of(blocks=2)
    data = b"".join(records)
    for size in range(len(data) + 1):
        directory = tmp_path / str(size)
        directory.mkdir()
        recovered = recover(write_open(directory, data[:size]), LATER)
        count = max(n for n in range(len(records) + 1) if sum(map(len, records[:n])) <= size)
        torn = data[sum(map(len, records[:count])) : size]
        assert recovered == Recovered(name_of(), count, 0, len(torn))
        assert files_of(directory) == closed_as(records[:count], torn)


@pytest.mark.parametrize(
    "tail",
    [
        b"\0",
        bytes(5000),
        b"\xff" * 50,
        event(200)[:-1],
        event(200)[:-1] + b"\1",  # Complete but damaged, and followed by no complete record.
        event(9)[:-1] + b"\1" + event(8)[:-1] + b"\1" + bytes(8),
        event(9)[:-1] + b"\1" + event(5000)[:3000],
    ],
)
def test_every_kind_of_torn_end(tmp_path: Path, tail: bytes) -> None:
    records = records_of()
    recovered = recover(write_open(tmp_path, b"".join(records) + tail), LATER)
    assert (recovered.cut, recovered.damaged) == (len(tail), 0)
    assert files_of(tmp_path) == closed_as(records, tail)
    assert (tmp_path / str(name_of(state=TORN))).stat().st_mode & 0o777 == 0o600


def test_damage_before_complete_records_stays(tmp_path: Path) -> None:
    records = records_of(blocks=2)
    records[2] = records[2][:-1] + b"\xee"
    recovered = recover(write_open(tmp_path, b"".join(records) + b"\0\0"), LATER)
    assert recovered == Recovered(name_of(), len(records), 1, 2)
    assert files_of(tmp_path) == closed_as(records, b"\0\0")


def test_a_damaged_block_record_is_no_block(tmp_path: Path) -> None:
    records = records_of(blocks=3)
    records[4] = records[4][:-1] + b"\xee"
    path = write_open(tmp_path, b"".join(records))
    recover(path, LATER)
    footer = read_footer(tmp_path / str(name_of()))
    assert footer is not None
    assert (footer.records, len(footer.blocks)) == (len(records), 2)


def test_segment_with_an_end_is_only_renamed(tmp_path: Path) -> None:
    data = closed_segment()
    recovered = recover(write_open(tmp_path, data), LATER)
    assert (recovered.records, recovered.cut) == (len(records_of()), 0)
    assert files_of(tmp_path) == {str(name_of()): data}


def test_segments_of_a_node_are_closed_in_order(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write(tmp_path, b"".join(records_of()), LIVE, number)
    write(tmp_path, closed_segment(), number=3)
    others = "a" * 52
    (tmp_path / f"{others}{str(name_of(0, LIVE))[52:]}").write_bytes(b"theirs")
    assert [one.name.number for one in recover_left(tmp_path, NODE.text, LATER)] == [0, 1, 2]
    assert [file.is_live for file in list_segments(tmp_path, NODE.text)] == [False] * 4
    assert [file.is_live for file in list_segments(tmp_path, others)] == [True]
    assert recover_left(tmp_path, NODE.text, LATER) == []


def test_closed_segment_is_never_replaced(tmp_path: Path) -> None:
    closed = write(tmp_path, closed_segment())
    path = write_open(tmp_path, b"".join(records_of()))
    before = files_of(tmp_path)
    for wrong in (path, closed):
        with pytest.raises(JournalFailedError):
            recover(wrong, LATER)
    assert files_of(tmp_path) == before


# Crashes of the recovery itself.


class Crash(Exception):
    """Simulates the end of the process."""


class Disk:
    """The system calls of the recovery, which crashes at the `fatal`-th one.

    If the last one is a write, half of its bytes are written. The calls are counted.
    """

    def __init__(self, patch: pytest.MonkeyPatch, fatal: int, error: type[Exception]) -> None:
        self.asked = 0
        self._fatal, self._error = fatal, error
        for name in ("fsync", "ftruncate", "rename", "write"):
            patch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def request(*arguments: Any) -> Any:
            self.asked += 1
            if self.asked == self._fatal:
                if name == "write":
                    descriptor, data = arguments
                    real(descriptor, data[: len(data) // 2])
                raise self._error
            return real(*arguments)

        return request


@pytest.mark.parametrize("error", [Crash, OSError])
@pytest.mark.parametrize("tail", [b"", b"\0\0\0", event(5000)[:-1], event(40)[:-1] + b"\1"])
def test_crash_at_any_point_does_not_change_the_result(
    tmp_path: Path, tail: bytes, error: type[Exception]
) -> None:
    records = records_of()
    wanted = closed_as(records, tail)
    # If no part was torn before, an incomplete `segment end` is saved as a torn end.
    end = end_of(records, time=LATER)
    allowed = [wanted] if tail else [wanted, closed_as(records, end[: len(end) // 2])]
    fatal = 0
    while True:
        fatal += 1
        directory = tmp_path / str(fatal)
        directory.mkdir()
        path = write_open(directory, b"".join(records) + tail)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, fatal, error)
            with suppress(Crash, JournalFailedError):
                recover(path, LATER)
        if disk.asked < fatal:
            break
        for torn in list_torn(directory):  # Complete as soon as it has its name.
            assert tail == torn.path.read_bytes()
        # Once more with another crash, and then to the end.
        for again in (2, 0):
            with pytest.MonkeyPatch.context() as patch:
                Disk(patch, again, Crash)
                with suppress(Crash):
                    recover_left(directory, NODE.text, LATER)
        assert files_of(directory) in allowed, fatal
        [segment] = list_segments(directory)
        assert {r.status for r in read_range(segment.path, 0, segment.size)} == {"ok"}
    assert fatal > (8 if tail else 4)
    assert files_of(directory) == wanted
