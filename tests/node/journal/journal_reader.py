"""The audit of a node's closed journal, for tests of code that writes journals."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.rows import EVENT_COLUMNS, STATUS_AT, SessionRow
from parley._node.journal.record_types import SegmentEnd, SegmentHead, parse_block
from parley._node.journal.records import OK, Record, read_records

KEY_OF_EVENT = [EVENT_COLUMNS.index(name) for name in ("session", "direction", "place", "digest")]


def paths_of(directory: Path, node: str = "") -> list[Path]:
    """Return the segments of a node, in order."""
    return sorted(directory.glob(f"{node}*.pjl*"))


def records_of(directory: Path, node: str = "") -> list[list[Record]]:
    """Return the records of each segment of a node, in order; all must be complete."""
    segments = []
    for path in paths_of(directory, node):
        records = list(read_records(path.read_bytes()))
        assert {record.status for record in records} == {OK}
        assert [record.kind == keys.SEGMENT for record in records] == [True] + [False] * (
            len(records) - 1
        )
        segments.append(records)
    return segments


@dataclass
class Followed:
    """The results of an audit. `events` has the digests of each session and direction, by place."""

    sessions: list[SessionRow]
    events: dict[tuple[str, str], dict[int, bytes]]
    checkpoints: int

    @property
    def ends(self) -> list[SessionRow]:
        """Return the ends of sessions."""
        return [row for row in self.sessions if row.what == "end"]


def follow(directory: Path, node: str, *auditors: AuditorPrivateKey) -> Followed:
    """Audit a closed journal from its start and from each block, without findings."""
    stems = [path.name.partition(".")[0] for path in paths_of(directory, node)]
    whole, fresh, checkpoints = Audit(auditors), Audit(auditors), 0
    for number, (stem, records) in enumerate(zip(stems, records_of(directory, node), strict=True)):
        head, end = SegmentHead.parse(records[0].body), SegmentEnd.parse(records[-1].body)
        assert (head.number, end.records) == (number, len(records) - 1)
        blocks = [record for record in records if record.kind == keys.BLOCK]
        assert end.blocks == tuple(record.offset for record in blocks)
        assert [parse_block(record.body)[0] for record in blocks] == list(range(len(blocks)))
        for record in records:
            if record.kind == keys.BLOCK:
                assert_honest(fresh)
                fresh = Audit(auditors)
            checkpoints += record.kind == keys.CHECKPOINT
            for audit in (whole, fresh):
                audit.record(stem, record)
    assert_honest(fresh)
    events = assert_honest(whole)
    return Followed(whole.take_sessions(), events, checkpoints)


def assert_honest(audit: Audit) -> dict[tuple[str, str], dict[int, bytes]]:
    """Check that an audit has no findings; the last events may be unsealed."""
    audit.finish_pending()
    assert audit.take_findings() == []
    events: dict[tuple[str, str], dict[int, bytes]] = defaultdict(dict)
    for row in audit.take_events():
        assert row[STATUS_AT] in ("ok", "unsealed")
        session, direction, place, digest = (row[at] for at in KEY_OF_EVENT)
        events[session, direction][place] = digest
    return events


def assert_same_events(ours: Followed, theirs: Followed) -> None:
    """Check that, in each session, one side received the events that the other one sent.

    The side that closes a session does not read what the other one sends at the same moment, here
    one event: the answer to the end of a subscription.
    """
    sessions = {session for session, _ in [*ours.events, *theirs.events]}
    assert sessions
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        for session in sessions:
            sent = sorted(sender.events[session, "sent"].items())
            received = sorted(receiver.events[session, "received"].items())
            assert received == sent[: len(received)]
            assert len(received) >= len(sent) - 1
