"""A forger that knows only the documents: the audit finds its forgeries in the right places."""

from pathlib import Path

import pytest

from tests.node.apps.simulate.journals import Simulated, audit
from tests.pipeline import forger

EXPECTED = {
    "bit-flip": {"bad-chain"},
    "drop": {"gap", "bad-chain"},  # the latter if keys change before the next checkpoint
    "duplicate": {"duplicate"},
    "reorder": {"reordered"},
    # The latter with sealing `each`, if only a checkpoint follows.
    "foreign-seal": {"bad-seal", "bad-chain"},
    "rechain": {"bad-seal"},
    "forged-code": {"end-mismatch"},
    "early-end": set[str](),  # detectable only in the other side's journal
    "bad-crc": {"bad-crc"},
    "torn-tail": {"torn"},
    "missing-segment": {"missing-segment"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", forger.KINDS)
def test_a_fault_is_found_where_it_is(simulated: Simulated, copied: Path, kind: str) -> None:
    fault = forger.forge(copied, kind, seed=4)
    findings = audit(copied, simulated.key, fault.file[:52]).findings
    wanted = EXPECTED[kind]
    assert bool(wanted) == bool(findings)
    if not findings:
        return
    first = findings[0]
    assert first.kind in wanted
    if fault.place is not None and kind != "bad-crc":
        assert (first.session, first.direction) == (fault.session, fault.direction)
        assert first.place is not None
        # The first invalid seal is at the event or after it.
        later = kind == "rechain" and first.place > fault.place
        assert later or first.place == fault.place


@pytest.mark.slow
def test_all_kinds_at_once_and_nothing_else_are_found(simulated: Simulated, copied: Path) -> None:
    faults: list[forger.Fault] = []
    for kind in forger.KINDS:
        avoid = frozenset(fault.session for fault in faults if fault.session)
        faults.append(forger.forge(copied, kind, seed=4, avoid=avoid))
    found = audit(copied, simulated.key).findings
    # A missing segment affects all sessions of its node.
    nodes = {fault.file[:52] for fault in faults if fault.session is None}
    for finding in found:
        assert finding.journal in nodes or finding.session in {one.session for one in faults}
    for fault in faults:
        kinds = {
            finding.kind
            for finding in found
            if finding.session == fault.session or finding.journal == fault.file[:52]
        }
        assert not EXPECTED[fault.kind] or kinds & EXPECTED[fault.kind], fault


def test_untouched_records_are_written_unchanged(copied: Path) -> None:
    for session in forger.load(copied):
        for segment in session.segments:
            before = segment.path.read_bytes()
            segment.save()
            assert segment.path.read_bytes() == before


def test_sessions_to_be_avoided_are(copied: Path) -> None:
    every = frozenset(session.id for session in forger.load(copied))
    with pytest.raises(ValueError, match="no place for drop"):
        forger.forge(copied, "drop", avoid=every)
    one = min(every)
    assert forger.forge(copied, "drop", avoid=every - {one}).session == one
