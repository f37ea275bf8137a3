"""Nodes under load, killed at random points, with or without a power cut.

A power cut also loses the data that was not yet on the disk.

The expected state is read from the files by the reference implementation, before the journal is
reopened. `--rounds N` kills N times, divided among the fsync policies.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random  # noqa: TID251 - chooses when to kill
from time import perf_counter
from typing import Any, NamedTuple

import anyio
import pytest

from parley import Node
from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.rows import STATUS_AT
from parley._node.journal.journal import Journal
from parley._node.journal.record_types import parse_event_head
from parley._node.journal.records import OK
from parley._node.journal.segments import (
    TORN,
    SegmentFile,
    closed_path,
    list_segments,
    open_segment,
    read_footer,
    read_range,
)
from tests.node.journal.crash_writer import LONGEST, SHARED_SIZE, Shared
from tests.reference import journal as reference

POLICIES = ("always", "interval", "never")
# The most events that the other side receives before a kill. Every fourth round is instead killed
# after at most so many seconds, during recovery or a handshake.
MOST_EVENTS = 150
EARLIEST = 0.05
# Small, so that many kills happen between the end of a segment and the beginning of the next.
SETTINGS: dict[str, Any] = {"segment_size": 2**18, "fsync_interval": 0.05}
AUDITOR = AuditorPrivateKey.create()


class SegmentWriter:
    """The process that forks the processes to be killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.node.journal.crash_writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def kill(self, spec: dict[str, Any], events: int, seconds: float) -> dict[Path, bytes]:
        """Begin a round, and kill it after so many received events and seconds.

        Returns the contents of its segments shortly before.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(spec) + "\n")
        self.process.stdin.flush()
        child = int(self._line())
        give_up = perf_counter() + LONGEST
        while sum(Shared.read(Path(spec["shared"])).received) < events:
            assert perf_counter() < give_up, "it died, or does nothing"
            time.sleep(0.002)
        seen = contents(Path(spec["directory"]))
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        assert int(self._line()) == -signal.SIGKILL
        return seen

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def writer() -> Iterator[SegmentWriter]:
    writer = SegmentWriter()
    with writer.process:
        yield writer


class Left(NamedTuple):
    """The state of a run's live segment after a kill."""

    path: Path
    whole: bytes  # Up to its last complete record.
    torn: bytes

    @classmethod
    def read(cls, path: Path) -> "Left":
        data = path.read_bytes()
        end = 0
        for record in reference.records(data):
            if record["status"] != "ok":
                break
            end = record["offset"] + record["size"]
        return cls(path, data[:end], data[end:])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_journal_survives_kills(
    tmp_path: Path, writer: SegmentWriter, policy: str, rounds: int
) -> None:
    identity = Identity.create()
    directory, shared = tmp_path / "journal", tmp_path / "shared"
    random = Random(policy)
    for number in range(len(range(POLICIES.index(policy), rounds, len(POLICIES)))):
        shared.write_bytes(bytes(SHARED_SIZE))
        before = files_of(directory)
        spec = {
            "directory": str(directory),
            "shared": str(shared),
            "key": identity.keys[0].private_bytes().hex(),
            "auditor": AUDITOR.public.text,
            "settings": {**SETTINGS, "fsync": policy},
            "seed": number,
            "backend": ("asyncio", "trio")[number // 2 % 2],
        }
        early = number % 4 == 3
        events = 0 if early else random.randrange(MOST_EVENTS)
        seen = writer.kill(spec, events, random.uniform(0, EARLIEST) if early else 0)
        assert_kept(seen, directory)
        known = Shared.read(shared)
        if number % 2:
            lose_unsynced(directory, known)
        left = [Left.read(file.path) for file in list_segments(directory) if file.is_live]
        assert_recovered(left, anyio.run(opened_again, identity, directory))
        assert before.items() <= files_of(directory).items()
        # The last of the new segments belongs to the node that reopened the journal.
        run = [file for file in list_segments(directory) if file.path.name not in before][:-1]
        sent = verified(run, {"no-end", "torn"} if any(one.torn for one in left) else {"no-end"})
        if policy == "always":
            assert len(sent) >= len(known.received)
            both = zip(known.received, sent, strict=False)
            assert [(number, got, had) for got, had in both if got > had] == []


def files_of(directory: Path) -> dict[str, int]:
    """Return the names and sizes of the segments."""
    directory.mkdir(exist_ok=True)
    return {file.path.name: file.size for file in list_segments(directory)}


def contents(directory: Path) -> dict[Path, bytes]:
    """Return the contents of the segments, by their names when closed."""
    found = {}
    for file in list_segments(directory):
        with open_segment(file.path) as segment:
            found[closed_path(file.path)] = segment.read()
    return found


def assert_kept(seen: dict[Path, bytes], directory: Path) -> None:
    """Check that files still have everything that was passed to the system before the kill."""
    now = contents(directory)
    for path, data in seen.items():
        assert now[path].startswith(data)


async def opened_again(identity: Identity, directory: Path) -> list[Any]:
    """Return the segments that a node's journal recovers when it begins."""
    journal = Journal.open(directory, AUDITOR.public)
    async with Node(identity, journal=journal):
        return journal.recovered


def lose_unsynced(directory: Path, known: Shared) -> None:
    """Remove everything that the system did not confirm to be on the disk, as after a power cut."""
    for file in list_segments(directory):
        if file.is_live:
            same = file.path.stat().st_ino == known.synced_inode
            os.truncate(file.path, known.synced_size if same else 0)


def assert_recovered(left: list[Left], recovered: list[Any]) -> None:
    """Check that complete records stay unchanged, and the rest is cut off, saved and reported."""
    assert [str(one.name) + ".open" for one in recovered] == [one.path.name for one in left]
    for one, reported in zip(left, recovered, strict=True):
        closed = one.path.with_suffix("")
        data = closed.read_bytes()
        assert data.startswith(one.whole)
        footer, records = read_footer(closed), list(reference.records(data))
        assert footer is not None
        assert {record["status"] for record in records} == {"ok"}
        assert (reported.cut, reported.damaged) == (len(one.torn), 0)
        assert footer.records == reported.records == len(records) - 1
        torn = closed.with_name(closed.name + TORN.removeprefix(".pjl"))
        assert (torn.read_bytes() if torn.exists() else b"") == one.torn


def verified(segments: list[SegmentFile], allowed: set[str]) -> list[int]:
    """Return the sent events by session; the run must verify up to where it was cut."""
    audit = Audit([AUDITOR])
    sent: list[int] = []
    for number, segment in enumerate(segments):
        assert segment.name.number == number
        for record in read_range(segment.path, 0, segment.size):
            assert record.status == OK
            audit.record(segment.name.stem, record)
            if record.kind == keys.SESSION_START:
                sent.append(0)
            elif record.kind == keys.EVENT:
                session, direction = parse_event_head(record.body)
                sent[session] += direction == keys.SENT
    audit.finish_pending()
    assert {finding.kind for finding in audit.take_findings()} <= allowed
    assert {row[STATUS_AT] for row in audit.take_events()} <= {"ok", "unsealed"}
    return sent
