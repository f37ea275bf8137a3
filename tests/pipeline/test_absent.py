"""Records removed from a journal are reported as missing: secrets, ends of sessions and of
segments.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.journal import keys
from parley._node.journal.record_types import Checkpoint, Secret, SegmentEnd, SegmentHead
from parley._node.journal.records import Record, encode_record, read_records
from parley._node.journal.segments import CLOSED, LIVE, read_range
from tests.node.journal.audit.audit_helpers import Audited
from tests.node.journal.joined_tunnels import join
from tests.node.journal.joined_tunnels import tunnel_record as a_tunnel
from tests.node.journal.memory_journal import AUDITOR, MemoryJournal, RecordedPair, records_of
from tests.pipeline.local_pipeline import Told, Walks

Segments = dict[str, bytes]


@cache
def made() -> MemoryJournal:
    """Two sessions, the first of which ends in the second of four segments, with a rekey in it."""
    rec = RecordedPair()
    journal = rec.journals[1]
    said = rec.logs[1]
    for number in range(40):
        rec.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        rec.pump()
        if number == 10:
            rec.pair.a.core.rekey(rec.pair.now)
            rec.run(0.1)
        if number == 20:
            said.session_suspended("no answer")
            said.session_resumed(1)
            join(journal, a_tunnel())
        if number == 30:
            journal.next_segment()
    rec.run(0.05)
    rec.pair.a.core.close(rec.pair.now, 0)
    rec.pump()
    rec.meet()
    for number in range(20):
        rec.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        rec.pump()
        if number in (5, 15):
            journal.next_segment()
        if number == 17:
            rec.pair.a.core.update_keys(rec.pair.now)
    rec.run(0.05)
    rec.end()
    return journal


def rewritten(segments: Segments, keep: Callable[[int, int, bytes], bytes | None]) -> Segments:
    """Rewrite a segment with other bodies of records, or without some, with matching ends, as a
    forger would. `keep` gets the segment's number, the kind and the body.
    """
    found: Segments = {}
    for number, (stem, data) in enumerate(segments.items()):
        bodies = ((one, keep(number, one.kind, one.body)) for one in read_records(data))
        found[stem] = sealed_up(one._replace(body=body) for one, body in bodies if body is not None)
    return found


def sealed_up(records: Iterable[Record]) -> bytes:
    """A segment of these, with lengths, checksums and an end that fit."""
    blocks: list[int] = []
    out = b""
    for count, record in enumerate(records):
        body = record.body
        if record.kind == keys.SEGMENT_END:
            body = SegmentEnd(count, tuple(blocks)).encode()
        if record.kind == keys.BLOCK:
            blocks.append(len(out))
        out += encode_record(record.kind, record.time, body)
    return out


def verified(segments: Segments) -> Audited:
    return Audited(records_of(segments))


def tunnel_record(segments: Segments, place: Path, *, batches: bool) -> Told:
    """By the pipeline, in one batch or in one for each segment."""
    place.mkdir()
    walks, places = Walks([AUDITOR.private_bytes()]), [place]
    for stem, data in segments.items():
        (place / (stem + CLOSED)).write_bytes(data)
    return walks.told_by(steps(place) if batches else places)


def steps(place: Path) -> list[Path]:
    """Directories in which there is always one segment more."""
    found = []
    paths = sorted(place.glob("*.pjl"))
    for count in range(1, len(paths) + 1):
        step = place.with_name(f"{place.name} {count}")
        step.mkdir()
        for path in paths[:count]:
            (step / path.name).write_bytes(path.read_bytes())
        found.append(step)
    return found


def kinds(found: Told) -> Counter[str]:
    return Counter(text.split('"')[3] for text in found.findings)


def without_secret(generation: int) -> Segments:
    def keep(number: int, kind: int, body: bytes) -> bytes | None:
        gone = kind == keys.SECRET and body[:4] == bytes(4)
        return None if gone and Secret.parse(body).generation == generation else body

    return rewritten(made().segments, keep)


def without_tail() -> Segments:
    """The segment in which it ends has no other record of the first session."""

    def keep(number: int, kind: int, body: bytes) -> bytes | None:
        of_it = keys.SESSION_START <= kind <= keys.SESSION_END and body[:4] == bytes(4)
        return None if number == 1 and of_it else body

    return rewritten(made().segments, keep)


def with_older_copy() -> Segments:
    """The second segment is as it was before the first session ended."""
    over = False

    def keep(number: int, kind: int, body: bytes) -> bytes | None:
        nonlocal over
        over = number == 1 and (over or kind == keys.SESSION_END)
        return None if over else body

    return rewritten(made().segments, keep)


def test_of_the_honest_journal_nothing_is_found(tmp_path: Path) -> None:
    assert len(made().segments) == 4
    assert verified(made().segments).findings == []
    assert tunnel_record(made().segments, tmp_path / "j", batches=True).findings == []


@pytest.mark.parametrize("generation", [0, 1])
def test_a_secret_that_was_taken_out_is_absent(generation: int, tmp_path: Path) -> None:
    segments = without_secret(generation)
    found = verified(segments)
    finding, *others = found.findings
    assert (finding.kind, finding.offset > 0) == ("missing-secret", True)
    assert {other.kind for other in others} <= {"undecryptable"}
    assert f"generation {generation} has no record before this" in finding.evidence
    statuses = Counter(row.status for row in found.rows)
    # A later checkpoint has its boxes, and what follows is read again.
    assert statuses["undecryptable"] > 5
    assert statuses["ok"] > statuses["undecryptable"]
    for batches in (False, True):
        by_pipeline = kinds(tunnel_record(segments, tmp_path / f"j{batches}", batches=batches))
        assert by_pipeline["missing-secret"] == 1
        assert set(by_pipeline) <= {"missing-secret", "undecryptable"}


def test_it_is_absent_where_a_range_ends_before_anything_needs_it(tmp_path: Path) -> None:
    rec = RecordedPair()
    rec.journals[1].roll()
    rec.end()
    segments = rec.journals[1].segments
    ((stem, data),) = segments.items()
    order = [record.kind for record in read_records(data)]
    assert order[2:5] == [keys.SESSION_START, keys.SECRET, keys.BLOCK]
    without = rewritten(segments, lambda _, kind, body: None if kind == keys.SECRET else body)
    assert [finding.kind for finding in verified(without).findings] == ["missing-secret"]
    for private in ([], [AUDITOR.private_bytes()]):
        for name, made_of in (("whole", segments), ("without", without)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / (stem + CLOSED)).write_bytes(made_of[stem])
        walks = Walks(private, range_size=1)
        assert kinds(walks.told_by([tmp_path / "whole"])) == {}
        # Two of its directions: the continuation doesn't match the beginning.
        found = Walks(private, range_size=1).told_by([tmp_path / "without"])
        assert kinds(found) == {"checkpoint-mismatch": 2}


def test_labels_that_were_altered_are_told() -> None:
    rec = RecordedPair()
    core = rec.pair.a.core
    stream = core.open_stream("topic:news")
    core.send(stream, 0, 64, 1, b"1", lbm=False)
    rec.pump()
    rec.journals[1].roll()
    rec.end()

    def keep(number: int, kind: int, body: bytes) -> bytes | None:
        if kind != keys.CHECKPOINT:
            return body
        checkpoint = Checkpoint.parse(body)
        assert checkpoint.labels is not None
        return replace(checkpoint, labels=bytes(len(checkpoint.labels))).encode()

    segments = rec.journals[1].segments
    assert verified(segments).findings == []
    found = verified(rewritten(segments, keep)).findings
    assert [finding.kind for finding in found] == ["checkpoint-mismatch"]


def test_it_is_absent_without_a_key_too() -> None:
    found = Audited(records_of(without_secret(0)), key=False)
    assert [finding.kind for finding in found.findings] == ["missing-secret"]


@pytest.mark.parametrize("segments", [without_tail, with_older_copy])
def test_a_session_without_its_end_in_a_run_that_goes_on_is_a_fault(
    segments: Callable[[], Segments], tmp_path: Path
) -> None:
    found = verified(segments())
    first = Counter(finding.kind for finding in found.findings)
    assert first["cut-short"] == 1
    assert "no-end" not in first
    for batches in (False, True):
        by_pipeline = kinds(tunnel_record(segments(), tmp_path / f"j{batches}", batches=batches))
        assert by_pipeline["cut-short"] == 1
        assert "no-end" not in by_pipeline


def test_what_damage_explains_is_not_said_to_be_cut_short(tmp_path: Path) -> None:
    segments = made().segments
    stem = list(segments)[1]
    data = bytearray(segments[stem])
    end = next(one for one in read_records(bytes(data)) if one.kind == keys.SESSION_END)
    data[end.offset + end.size - 1] ^= 1
    segments[stem] = bytes(data)
    found = verified(segments)
    assert [finding.kind for finding in found.findings] == ["bad-crc"]
    assert kinds(tunnel_record(segments, tmp_path / "one", batches=False)) == {"bad-crc": 1}
    assert kinds(tunnel_record(segments, tmp_path / "many", batches=True)) == {"bad-crc": 1}


def test_a_missing_segment_explains_it_too(tmp_path: Path) -> None:
    segments = made().segments
    del segments[list(segments)[1]]
    assert "cut-short" not in {finding.kind for finding in verified(segments).findings}
    for batches in (False, True):
        found = kinds(tunnel_record(segments, tmp_path / f"j{batches}", batches=batches))
        assert found["missing-segment"] == 1
        assert "cut-short" not in found


def test_other_auditors_than_the_secrets_are_sealed_to(tmp_path: Path) -> None:
    other = bytes(AuditorPrivateKey.create().public)

    def keep(number: int, kind: int, body: bytes) -> bytes | None:
        if kind != keys.SEGMENT or number != 2:
            return body
        return replace(SegmentHead.parse(body), auditors=(other,)).encode()

    segments = rewritten(made().segments, keep)
    assert [finding.kind for finding in verified(segments).findings] == ["wrong-auditors"]
    assert kinds(tunnel_record(segments, tmp_path / "j", batches=True)) == {"wrong-auditors": 1}


def test_other_auditors_show_wherever_reading_was_broken_off(tmp_path: Path) -> None:
    """At first there is the segment's first record and an empty block, then a session."""
    stem, data = next(iter(made().segments.items()))
    head, *others = read_records(data)
    other = bytes(AuditorPrivateKey.create().public)
    body = replace(SegmentHead.parse(head.body), auditors=(other,)).encode()
    whole = sealed_up([head._replace(body=body), *others])
    ends = [one.offset for one in read_records(whole)]
    places = []
    for cut in (ends[2], ends[9], len(whole)):
        place = tmp_path / str(cut)
        place.mkdir()
        (place / (stem + (CLOSED if cut == len(whole) else LIVE))).write_bytes(whole[:cut])
        places.append(place)
    found = kinds(Walks([AUDITOR.private_bytes()]).told_by(places))
    assert found == {"wrong-auditors": 1}


@pytest.mark.parametrize("state", [CLOSED, LIVE])
@pytest.mark.parametrize("has_records", [False, True])
def test_a_closed_segment_without_its_end_is_torn(
    tmp_path: Path, state: str, has_records: bool
) -> None:
    stem, data = next(iter(made().segments.items()))
    *records, end = read_records(data)
    path = tmp_path / (stem + state)
    path.write_bytes(data[: end.offset] if has_records else b"")
    size = path.stat().st_size
    statuses = [record.status for record in read_range(path, 0, size)]
    assert statuses.count("torn") == (state == CLOSED)
    assert len(statuses) == has_records * len(records) + (state == CLOSED)
    by_pipeline = Walks([AUDITOR.private_bytes()]).told_by([tmp_path])
    assert kinds(by_pipeline) == ({"torn": 1} if state == CLOSED else {})
