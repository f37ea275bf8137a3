"""Every removed, duplicated or altered record is detected, except for those that the format names.

Lengths, checksums, counts and offsets are corrected after each alteration, as a forger would;
docs/journal.md lists the undetected ones as unverifiable data.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from parley._lbm.codec import decode, encode
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.record_types import LIMITS
from parley._node.journal.records import Record, read_records
from parley._node.journal.segments import CLOSED, read_range
from tests import sampling
from tests.node.journal.memory_journal import AUDITOR
from tests.pipeline.local_pipeline import Walks
from tests.pipeline.test_absent import Segments, kinds, made, sealed_up

Lists = dict[str, list[Record]]

# Where the map of a record's body begins.
MAPS: Final = {
    keys.SEGMENT: 0,
    keys.CHECKPOINT: 4,
    keys.SESSION_START: 4,
    keys.SECRET: 4,
    keys.KEY_UPDATE: 5,
    keys.SESSION_END: 4,
}
# A node's records of its transports and tunnels, which its journal alone can't prove.
SAID: Final = (keys.PARTED, keys.RESUMED, keys.TUNNEL)
# What can be the last of a session that is still open.
ENDS: Final = (keys.SESSION_END, keys.KEY_UPDATE)
# In a direction of a checkpoint: unsealed, and counters.
AIDS: Final = (5, 6)
BARE: Final = {(keys.SEGMENT, keys.START), (keys.SEGMENT, keys.SOFTWARE)}
BARE_WITHOUT_KEY: Final = {(keys.SESSION_END, keys.CODE), (keys.SESSION_END, keys.REMOTE)}


def lists() -> Lists:
    return {stem: list(read_records(data)) for stem, data in made().segments.items()}


def every_record() -> Iterator[tuple[str, int, Record]]:
    for stem, records in lists().items():
        for index, record in enumerate(records):
            yield stem, index, record


def with_records(stem: str, index: int, *records: Record) -> Segments:
    """The journal, with these instead of one record."""
    changed = lists()
    changed[stem][index : index + 1] = records
    return {stem: sealed_up(records) for stem, records in changed.items()}


def found_by_audit(segments: Segments, place: Path, *, key: bool) -> set[str]:
    """As `parley journal verify` reads files."""
    audit = Audit([AUDITOR] if key else [])
    for stem, data in segments.items():
        path = place / (stem + CLOSED)
        path.write_bytes(data)
        for record in read_range(path, 0, len(data)):
            audit.record(stem, record)
    audit.finish_pending()
    return {finding.kind for finding in audit.take_findings()}


@pytest.mark.timeout(300)  # some seconds of work, on a machine that may be busy
def test_each_record_that_is_taken_out_shows(tmp_path: Path) -> None:
    stems = list(made().segments)
    unnoticed = []
    for stem, index, record in every_record():
        segments = with_records(stem, index)
        found = [found_by_audit(segments, tmp_path, key=key) for key in (True, False)]
        # The pipeline is slower: of records that always show, it gets a third in each run.
        if record.kind in (*SAID, *ENDS) or index % 3 == sampling.seed % 3:
            found.append(set(kinds(Walks([AUDITOR.private_bytes()]).told_by([tmp_path]))))
        place = stems.index(stem)
        unnoticed += [(place, record.kind, by) for by, it in enumerate(found) if not it]
    # The last session's end, as if it were open, and (without a key) a key update behind the last
    # block.
    ends = [(3, keys.SESSION_END, by) for by in range(3)]
    said = [(0, kind, by) for kind in SAID for by in range(3)]
    assert sorted(unnoticed) == sorted([*ends, (3, keys.KEY_UPDATE, 1), *said])


def test_each_record_that_comes_twice_shows(tmp_path: Path) -> None:
    for stem, index, record in every_record():
        if record.kind in SAID:
            continue
        segments = with_records(stem, index, record, record)
        assert found_by_audit(segments, tmp_path, key=False), (stem, index, record.kind)


@pytest.mark.parametrize("key", [True, False])
def test_each_value_that_is_altered_shows(key: bool, tmp_path: Path) -> None:
    seen: set[int] = set()
    for stem, index, record in every_record():
        if record.kind in seen or record.kind not in MAPS:
            continue
        seen.add(record.kind)
        begin = MAPS[record.kind]
        cells = dict(decode(record.body[begin:], LIMITS))
        for name, value in cells.items():
            for altered, where in alterations(value):
                body = record.body[:begin] + encode({**cells, name: altered})
                segments = with_records(stem, index, record._replace(body=body))
                noticed = bool(found_by_audit(segments, tmp_path, key=key))
                bare = (record.kind, name) in BARE or (
                    not key and (record.kind, name) in BARE_WITHOUT_KEY
                )
                if name == keys.DIRECTIONS and where[1:2] and where[1] in AIDS:
                    continue  # readers that begin here need them: some of them show
                assert noticed is not bare, (record.kind, name, where)
    assert seen == set(MAPS)


def alterations(value: Any, *where: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """A value with one thing in it altered, and where that is in its arrays."""
    match value:
        case bool():
            yield not value, where
        case int():
            yield value + 1, where
        case bytes() if value:
            yield bytes([value[0] ^ 1]) + value[1:], where
            yield value[:-1] + bytes([value[-1] ^ 128]), where
        case str():
            yield value + "x", where
        case list():
            for at, one in enumerate(value):
                for altered, inside in alterations(one, *where, at):
                    yield [*value[:at], altered, *value[at + 1 :]], inside
