"""Tampering: all kinds at once are found where they were planted, and nothing else is."""

from pathlib import Path

import pytest

from parley._node.errors import FileError
from parley._node.journal.audit.rows import Finding
from tests.node.apps.simulate.journals import Audited, Simulated, audit
from tests.node.apps.simulate.tamper.plant import tamper
from tests.node.apps.simulate.tamper.planted import Fault, Planted
from tests.node.apps.simulate.tamper.segment import Segment
from tests.node.apps.simulate.tamper.survey import survey

# What an audit calls it; a forged end that comes early is for the other side's journal to tell.
NAMES = {
    Fault.BIT_FLIP: {"bad-chain", "bad-seal", "malformed"},
    Fault.DROP: {"gap", "bad-chain"},  # that, where keys change before the next checkpoint
    Fault.REORDER: {"reordered"},
    Fault.DUPLICATE: {"duplicate"},
    Fault.FOREIGN_SEAL: {"bad-seal", "bad-chain"},
    Fault.RECHAIN: {"bad-seal", "undecryptable"},
    Fault.FORGED_END: {"end-mismatch"},
    Fault.BAD_CRC: {"bad-crc", "bad-chain", "bad-seal"},
    Fault.TORN_TAIL: {"torn"},
    Fault.MISSING_SEGMENT: {"missing-segment", "gap"},
}


def explains(fault: Planted, finding: Finding) -> bool:
    """Whether a finding is of a fault: the same session and direction, as far as both say."""
    if finding.journal != fault.node or finding.kind not in NAMES[fault.kind]:
        return False
    if finding.session is None or fault.session is None:
        return finding.session is None or fault.kind is Fault.MISSING_SEGMENT
    same = finding.session == fault.session and finding.direction == fault.direction
    if fault.kind is Fault.RECHAIN:
        return same and finding.place is not None and finding.place >= (fault.place or 0)
    return same and finding.place == fault.place


def test_all_kinds_at_once(simulated: Simulated, copied: Path) -> None:
    faults = tamper(copied, Fault, seed=1)
    assert sorted({fault.kind for fault in faults}) == sorted(Fault)
    ways = [(f.node, f.session, f.direction) for f in faults if f.session and f.direction]
    assert len(set(ways)) == len(ways)
    findings = audit(copied, simulated.key).findings
    for fault in faults:
        found = [finding for finding in findings if explains(fault, finding)]
        assert found or fault.detail.startswith("ends at"), fault
    for finding in findings:
        assert any(explains(fault, finding) for fault in faults), finding


@pytest.mark.parametrize("kind", [Fault.BIT_FLIP, Fault.REORDER, Fault.FOREIGN_SEAL, Fault.RECHAIN])
def test_a_kind_by_itself(simulated: Simulated, copied: Path, kind: Fault) -> None:
    (fault,) = tamper(copied, [kind], seed=2)
    findings = audit(copied, simulated.key, fault.node).findings
    assert findings
    assert all(explains(fault, finding) for finding in findings)
    changed = {
        path.name
        for path in simulated.directory.glob("*.pjl")
        if path.read_bytes() != (copied / path.name).read_bytes()
    }
    assert fault.file in changed
    assert kind is Fault.RECHAIN or changed == {fault.file}


def test_the_same_seed_plants_at_the_same_places(simulated: Simulated, copied: Path) -> None:
    first = tamper(copied, [Fault.DROP, Fault.FORGED_END], seed=5)
    for path in simulated.directory.glob("*.pjl"):
        (copied / path.name).write_bytes(path.read_bytes())
    assert tamper(copied, [Fault.DROP, Fault.FORGED_END], seed=5) == first


@pytest.mark.slow
def test_an_early_end_leaves_nothing_of_what_followed(
    simulated: Simulated, audited: Audited, copied: Path
) -> None:
    _, early = tamper(copied, [Fault.FORGED_END], seed=1)
    assert early.count > 0

    def events(found: Audited) -> set[tuple[str, int]]:
        whose = early.node, early.session
        rows = (event for event in found.events if (event["journal"], event["session"]) == whose)
        return {(event["direction"], event["place"]) for event in rows}

    left = events(audit(copied, simulated.key, early.node))
    assert left < events(audited)
    assert len(left) == len(events(audited)) - early.count


def test_a_segment_is_written_as_it_was(simulated: Simulated, copied: Path) -> None:
    for path in copied.glob("*.pjl"):
        before = path.read_bytes()
        Segment(path).save()
        assert path.read_bytes() == before


def test_a_survey_knows_every_event(simulated: Simulated) -> None:
    found = survey(simulated.directory)
    assert len(found.sessions) == 2 * simulated.tally.sessions
    for session in found.sessions:
        assert session.end == session.segments[-1]
        for direction, place in enumerate(session.places):
            mine = [s for s in found.stretches if s.session is session and s.direction == direction]
            assert sum(stretch.count for stretch in mine) == place
            assert [stretch.has_end for stretch in mine if stretch.has_end] == [True]


def test_where_there_is_no_place_it_says_so(simulated: Simulated, copied: Path) -> None:
    for path in sorted(copied.glob("*.pjl"))[1:]:
        path.unlink()
    with pytest.raises(FileError, match="no place is left for missing-segment"):
        tamper(copied, [Fault.MISSING_SEGMENT], 0)
    with pytest.raises(FileError, match="no place is left for drop"):
        tamper(copied, [Fault.DROP] * 40, 0)
