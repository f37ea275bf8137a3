"""Each limit of an audit, exceeded: memory stays bounded, and every event still becomes a row."""

from functools import cache

import pytest

from parley._crypto.record_protection import StreamKey
from parley._node.journal import keys
from parley._node.journal.audit import broken_chain as search
from parley._node.journal.audit import direction as tracker
from parley._node.journal.audit import keyring, segment
from parley._node.journal.audit.keyring import EpochKeys
from parley._node.journal.record_types import EVENT, EVENT_HEAD
from tests.node.journal.audit.audit_helpers import (
    PREFIX_AT,
    SUITE,
    Audited,
    Records,
    events_in,
    flipped,
    received,
    recorded,
)
from tests.node.journal.memory_journal import RecordedPair, records_of

# Broken chains.


@pytest.mark.pure  # It replaces a constant of the core.
@pytest.mark.parametrize(("limit", "most"), [("MAX_KEPT", 10), ("MAX_KEPT_SIZE", 400)])
def test_number_of_events_kept_after_a_break_is_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    altered = flipped(recorded(), received(recorded())[49])
    unbounded = Audited(altered)
    monkeypatch.setattr(search, limit, most)
    bounded = Audited(altered)
    assert 0 < bounded.kept <= 10 < unbounded.kept
    # The same finding, with as many events, and as many rows of each status.
    assert bounded.findings == unbounded.findings
    assert [(one.kind, one.place) for one in bounded.findings] == [("bad-chain", 50)]
    assert bounded.findings[0].count == bounded.statuses["bad-chain"] > 10
    assert bounded.statuses == unbounded.statuses
    assert len(bounded.rows) == events_in(altered)
    # Events that were not kept have no place.
    broken = [row.place for row in bounded.rows if row.status == "bad-chain"]
    assert broken.count(None) == len(broken) - bounded.kept


@pytest.mark.pure  # It replaces a constant of the core.
def test_event_too_far_from_its_place_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = list(recorded())
    places = received(records)
    records.insert(places[60], records.pop(places[49]))
    near = Audited(records)
    assert near.kinds == ["reordered"]
    monkeypatch.setattr(search, "MAX_TRIED", 5)
    far = Audited(records)
    assert [(one.kind, one.place) for one in far.findings] == [("bad-chain", 50)]
    assert len(far.rows) == len(near.rows) == events_in(records)
    # No event is decrypted with a wrong key, and all events after the block are fine.
    assert far.findings[0].count == far.statuses["bad-chain"] > near.statuses["bad-chain"]
    assert far.statuses["ok"] > 60


@pytest.mark.pure  # It replaces a constant of the core.
def test_forgotten_copy_is_another_kind_of_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = list(recorded())
    places = received(records)
    records.insert(places[70], records[places[49]])
    assert Audited(records).kinds == ["duplicate"]
    monkeypatch.setattr(tracker, "_REMEMBERED", 8)
    forgotten = Audited(records)
    assert [(one.kind, one.count) for one in forgotten.findings] == [("bad-chain", 1)]
    assert len(forgotten.rows) == events_in(records)
    assert forgotten.statuses["ok"] == events_in(records) - 1


@pytest.mark.pure  # It replaces a constant of the core.
def test_events_after_a_large_gap_are_rows_without_content(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = set(received(recorded())[49:59])
    records = [one for index, one in enumerate(recorded()) if index not in gone]

    def behind_it() -> set[str | None]:
        audited = Audited(records)
        assert [(one.kind, one.count) for one in audited.findings] == [("gap", 10)]
        assert len(audited.rows) == events_in(records)
        return {row.content.type for row in audited.rows if row.status == "gap"}

    assert "application" in behind_it()
    monkeypatch.setattr(keyring, "TRIED_COUNTERS", 5)
    assert behind_it() == {None, "seal"}  # In the stream without a gap.


def test_number_of_tried_counters_is_bounded() -> None:
    secret, stream, form = bytes(32), bytes(4), b"\0"
    sender = StreamKey(SUITE, secret, 0)
    blobs = [sender.encrypt(b"%d" % number, stream + form) for number in range(200)]
    key = EpochKeys(SUITE)
    key.secret = secret
    assert key.decrypt(stream, blobs[5], form) is None  # No event is reported as missing.
    key.guess = True
    assert key.decrypt(stream, blobs[keyring.TRIED_COUNTERS], form) is None
    assert key.decrypt(stream, blobs[keyring.TRIED_COUNTERS - 1], form) == b"63"
    assert key.decrypt(stream, blobs[keyring.TRIED_COUNTERS], form) == b"64"


# Pending events, and events of unknown sessions.


def without_seals(records: Records) -> Records:
    """Remove all seals and checkpoints, so that pending events stay pending."""
    first = next(i for i in received(records) if records[i][1].body[EVENT_HEAD + 4] == 1)
    cut = [one for one in records[:first] if one[1].kind not in (keys.BLOCK, keys.CHECKPOINT)]
    assert len(received(cut)) > 40
    return cut


@cache
def unsealed() -> Records:
    made = RecordedPair(seal_events=128)
    for number in range(60):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
    made.run(0.05)
    made.end()
    return without_seals(records_of(made.journals[1].segments))


@pytest.mark.pure  # It replaces a constant of the core.
@pytest.mark.parametrize(("limit", "most"), [("MAX_PENDING", 10), ("MAX_PENDING_SIZE", 400)])
def test_number_of_pending_rows_is_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    assert Audited(unsealed()).pending > 10
    monkeypatch.setattr(tracker, limit, most)
    audited = Audited(unsealed())
    assert 0 < audited.pending <= 10
    assert audited.statuses["unsealed"] == len(received(unsealed()))
    assert len(audited.rows) == events_in(unsealed())


@pytest.mark.pure  # It replaces a constant of the core.
def test_late_seal_covers_the_rows_still_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = RecordedPair(seal_events=128)
    for number in range(25):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
    made.run(0.05)
    made.end()
    records = records_of(made.journals[1].segments)
    assert set(Audited(records).statuses) == {"ok"}
    monkeypatch.setattr(tracker, "MAX_PENDING", 10)
    audited = Audited(records)
    assert len(audited.rows) == events_in(records)
    assert audited.findings == []
    reported = {
        row.payload: row.status for row in audited.rows if row.content.type == "application"
    }
    assert reported == {b"%d" % n: "unsealed" if n < 22 else "ok" for n in range(25)}


@pytest.mark.pure  # It replaces a constant of the core.
def test_number_of_pending_rows_is_bounded_after_a_foreign_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event fits nowhere, so the search for its place continues while all others fit."""
    monkeypatch.setattr(tracker, "MAX_PENDING", 10)
    records = list(unsealed())
    at = received(records)[5]
    body = records[at][1].body
    foreign = body[:PREFIX_AT] + bytes(len(body) - PREFIX_AT)
    records.insert(at, (records[at][0], records[at][1]._replace(body=foreign)))
    audited = Audited(records)
    assert len(audited.rows) == events_in(records)
    assert audited.kinds == ["bad-chain"]
    assert audited.pending <= 10


@pytest.mark.pure  # It replaces a constant of the core.
def test_number_of_separately_counted_unknown_sessions_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "MOST_UNKNOWN", 3)
    records = list(recorded())
    at = received(records)[49]
    stem, event = records[at]
    tail = event.body[EVENT_HEAD:]
    records[at:at] = [
        (stem, event._replace(body=EVENT.pack(number, 0) + tail))
        for number in (*range(70, 80), 70, 79)
    ]
    audited = Audited(records)
    assert audited.kinds == ["no-session"] * 4
    assert sorted(one.count for one in audited.findings) == [1, 1, 2, 8]
    assert audited.statuses == {"ok": events_in(recorded()), "gap": 12}
