"""Pruning removes the oldest segments first, never a live one, and never leaves a gap."""

import fcntl
import os
from pathlib import Path

import pytest

from parley._crypto.identity import NodeId
from parley._node.journal.prune import prune
from parley._node.journal.recovery import recover
from parley._node.journal.segments import LIVE, LOCK, TORN, SegmentName
from tests.node.journal.small_segments import NODE, NOW, end_of, name_of, records_of

OTHER = NodeId(bytes(32))
HOUR = 3600 * 10**9


def put(directory: Path, name: SegmentName, hours_ago: float) -> int:
    """Write a segment that ended so long ago; return its size."""
    records = records_of(blocks=1)
    time = NOW - int(hours_ago * HOUR)
    data = b"".join([*records, end_of(records, time=time)])
    path = directory / str(name)
    path.write_bytes(data)
    if name.state != ".pjl":
        os.utime(path, ns=(time, time))
    return len(data)


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.suffix != LOCK}


@pytest.mark.parametrize("dry_run", [False, True])
def test_by_age(tmp_path: Path, dry_run: bool) -> None:
    for number, hours in enumerate((9, 8, 3, 2)):
        put(tmp_path, name_of(number), hours)
    put(tmp_path, name_of(1, TORN), 1)
    before = names_in(tmp_path)
    removed = prune(tmp_path, now=NOW, older_than=4 * 3600, dry_run=dry_run)
    assert [str(one.name) for one in removed] == [
        str(name) for name in (name_of(0), name_of(1), name_of(1, TORN))
    ]
    assert [one.last for one in removed] == [NOW - 9 * HOUR, NOW - 8 * HOUR, NOW - 8 * HOUR]
    gone = set() if dry_run else {one.path.name for one in removed}
    assert names_in(tmp_path) == before - gone


def test_old_segment_after_a_newer_one_stays(tmp_path: Path) -> None:
    """The clock was set back: removing the segment would leave a gap."""
    for number, hours in enumerate((1, 9)):
        put(tmp_path, name_of(number), hours)
    assert prune(tmp_path, now=NOW, older_than=4 * 3600) == []


def test_by_size_over_all_nodes(tmp_path: Path) -> None:
    sizes = [
        put(tmp_path, name_of(number, node=node), hours)
        for node, ages in ((NODE, (9, 7, 1)), (OTHER, (8, 2)))
        for number, hours in enumerate(ages)
    ]
    removed = prune(tmp_path, now=NOW, max_size=2 * sizes[0])
    assert [str(one.name) for one in removed] == [
        str(name_of(0)),
        str(name_of(0, node=OTHER)),
        str(name_of(1)),
    ]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 2 * sizes[0]
    assert prune(tmp_path, now=NOW, max_size=2 * sizes[0]) == []
    assert prune(tmp_path, now=NOW) == []


def test_live_segment_stays_and_counts(tmp_path: Path) -> None:
    size = put(tmp_path, name_of(0), 9)
    put(tmp_path, name_of(1, LIVE), 9)
    lock = os.open(tmp_path / (NODE.text + LOCK), os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    removed = prune(tmp_path, now=NOW, older_than=0, max_size=size)
    assert [one.name for one in removed] == [name_of(0)]
    assert prune(tmp_path, now=NOW, older_than=0, max_size=0) == []
    os.close(lock)
    assert [one.name for one in prune(tmp_path, now=NOW, max_size=0)] == [name_of(1, LIVE)]
    assert names_in(tmp_path) == set()


def test_journal_cannot_begin_during_pruning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, name_of(0, LIVE), 9)
    tried = []

    def unlink(path: Path, missing_ok: bool) -> None:
        lock = os.open(tmp_path / (NODE.text + LOCK), os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(lock)
        tried.append(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    prune(tmp_path, now=NOW, max_size=0)
    assert len(tried) == 1


def test_end_of_an_open_segment_is_not_trusted(tmp_path: Path) -> None:
    """Its last bytes may come from a peer and imitate a `segment end` of long ago."""
    put(tmp_path, name_of(0, LIVE), 9)
    os.utime(tmp_path / str(name_of(0, LIVE)), ns=(NOW, NOW))
    assert prune(tmp_path, now=NOW, older_than=3600) == []


def test_a_segment_without_an_end_has_the_age_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / str(name_of(0))
    path.write_bytes(b"".join(records_of()))
    os.utime(path, ns=(NOW - HOUR, NOW - HOUR))
    [removed] = prune(tmp_path, now=NOW, older_than=1800)
    assert removed.last == NOW - HOUR


def test_torn_end_is_removed_with_its_segment(tmp_path: Path) -> None:
    path = tmp_path / str(name_of(0, LIVE))
    path.write_bytes(b"".join(records_of()) + b"torn")
    recover(path, NOW - HOUR)
    removed = prune(tmp_path, now=NOW, max_size=0)
    assert [one.name.state for one in removed] == [".pjl", TORN]
    assert names_in(tmp_path) == set()
