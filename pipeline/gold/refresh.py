"""Refreshing gold: summaries of new batches are merged with those of earlier batches.

Events of earlier batches are read again only where two journals differ.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from parley._pipeline.errors import NoTablesError
from parley._pipeline.gold.arrow import repeat_value
from parley._pipeline.gold.build import SCHEMAS, gold_tables, statuses_of
from parley._pipeline.gold.store import (
    MARK,
    PACKED,
    SUMMARY_TABLE,
    GoldStore,
    Mark,
    mark_table,
    read_mark,
    token_of,
)
from parley._pipeline.schema import FINDING, SESSION, STATEMENT, SUMMARY, TUNNEL, WAITING
from parley._pipeline.summary.kinds import (
    KINDS,
    Summary,
    decode_table,
    encode_table,
    merge_summaries,
)
from parley._pipeline.summary.pairing import pair, without_strays

# The number of summary rows that are packed together.
_PIECE: Final = 2**17
# How long a replaced slot is kept, because readers may still be using it.
KEEP: Final = timedelta(minutes=10)
_OTHERS: Final = {
    SESSION: "sessions",
    TUNNEL: "tunnels",
    STATEMENT: "statements",
    FINDING: "findings",
}


def refresh(store: GoldStore, check_key: bytes, now: datetime) -> Mark:
    """Make gold from all complete batches, unless it is already up to date."""
    slot, mark = newest(store)
    last = store.last_batch()
    token = token_of(store, last)
    if mark is not None and (mark.batch, mark.made) == (last, token) and _is_whole(store, slot):
        return mark
    if mark is not None and not _is_of(mark, store, last):
        # The slot was made from different batches with the same numbers: discard its summaries.
        for old in (0, 1):
            store.remove(old, [MARK])
        slot = mark = None
    before = None if slot is None else store.read(SUMMARY_TABLE, slot)
    done = -1 if before is None or mark is None else mark.batch
    summary = _folded([*_kept(before), *_new(store, done + 1, last)])
    waiting = _decode_rows(store.other_rows("stitched", [WAITING], last, last))
    whole = merge_summaries([summary, *waiting])
    gold = gold_tables(whole, lambda query: store.events(query, last), check_key)
    made = Mark(now, last, token, statuses_of(whole))
    other = 1 if slot == 0 else 0
    store.remove(other, [MARK])
    for name, table in gold.items():
        refreshed = repeat_value(now, KINDS["traffic"].keys["minute"], table.num_rows)
        store.write(name, other, table.append_column(MARK, refreshed))
    store.write(SUMMARY_TABLE, other, _encode_rows(summary))
    # Keep the batch before the last one: the last may be made again.
    store.forget(range(max(done - 1, 0), last - 1))
    store.write(MARK, other, mark_table(made))
    return made


def newest(store: GoldStore) -> tuple[int | None, Mark | None]:
    """Return the slot that was completed last and its mark, or None and None.

    Raises:
        NoTablesError: The tables were made by an earlier version.
    """
    marks = {slot: mark for slot in (0, 1) if (mark := _mark(store, slot)) is not None}
    if not marks:
        return None, None
    # Times alone are not sufficient, because a clock can be set back.
    slot = max(marks, key=lambda one: (marks[one].batch, marks[one].time))
    return slot, marks[slot]


def read_all_gold(store: GoldStore) -> dict[str, pa.Table] | None:
    """Read all gold tables of the newest slot by name; return None if there is no complete slot.

    Raises:
        NoTablesError: A table is damaged or was replaced while it was read.
    """
    slot, _ = newest(store)
    return None if slot is None else {name: read_table(store, name, slot) for name in SCHEMAS}


def read_table(store: GoldStore, name: str, slot: int) -> pa.Table:
    """Read a table of a slot that was complete.

    Raises:
        NoTablesError: The table is damaged, or two refreshes have happened since.
    """
    table = store.read(name, slot)
    if table is None:
        raise NoTablesError(
            f"cannot read the gold table {name!r}: it is damaged; repair it with "
            "`parley pipeline run`"
        )
    return table


def remove_old(store: GoldStore, now: datetime) -> None:
    """Delete a replaced slot once readers have had time to finish."""
    slot, mark = newest(store)
    if slot is not None and mark is not None and now - mark.time >= KEEP:
        store.remove(1 - slot, [MARK, *SCHEMAS, SUMMARY_TABLE])


def _is_of(mark: Mark, store: GoldStore, last: int) -> bool:
    """Return whether the batches of a slot are those that exist now."""
    return mark.batch <= last and token_of(store, mark.batch) == mark.made


def _is_whole(store: GoldStore, slot: int | None) -> bool:
    return slot is not None and all(store.has(name, slot) for name in SCHEMAS)


def _mark(store: GoldStore, slot: int) -> Mark | None:
    table = store.read(MARK, slot)
    return None if table is None else read_mark(table)


def _folded(summaries: Iterable[Summary]) -> dict[str, pa.Table]:
    """Merge summaries; of unpaired rows, keep only those that a later batch can complete."""
    summary = merge_summaries(summaries)
    paired = pair(summary["unpaired"])
    calls = merge_summaries([{"calls": summary["calls"]}, {"calls": paired.calls}])["calls"]
    return {**summary, "calls": calls, "unpaired": without_strays(paired.left)}


def _new(store: GoldStore, first: int, last: int) -> Iterator[Summary]:
    """Yield the summaries of new batches and their rows other than events."""
    for name in ("silver", "stitched"):
        rows = store.other_rows(name, [SUMMARY, *_OTHERS], first, last)
        yield from _decode_rows(rows)
        for part, kind in _OTHERS.items():
            some = rows.filter(pa.compute.equal(rows.column("part"), part))
            yield {kind: some.select(["other"])}


def _decode_rows(rows: pa.Table) -> Iterator[Summary]:
    names = ("batch", "part", "other", "payload")
    for batch, part, kind, payload in zip(
        *(rows.column(n).to_pylist() for n in names), strict=True
    ):
        if part not in (SUMMARY, WAITING):
            continue
        table = decode_table(payload)
        if kind == "blocks":
            number = pa.repeat(pa.scalar(batch, pa.int64()), table.num_rows)
            for column in ("since", "until"):
                table = table.set_column(table.schema.get_field_index(column), column, number)
        yield {kind: table}


def _kept(table: pa.Table | None) -> Iterator[Summary]:
    if table is not None:
        for kind, payload in zip(
            *table.select(["other", "payload"]).to_pydict().values(), strict=True
        ):
            yield {kind: decode_table(payload)}


def _encode_rows(summary: Summary) -> pa.Table:
    pieces = [
        {"part": SUMMARY, "other": kind, "payload": encode_table(table.slice(first, _PIECE))}
        for kind, table in summary.items()
        for first in range(0, table.num_rows, _PIECE)
    ]
    return pa.Table.from_pylist(pieces, PACKED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of events by status and of findings by kind in the gold tables."""

    events: Counter[str]
    findings: Counter[str]


def make_gold(store: GoldStore, check_key: bytes) -> Outcome:
    """Refresh gold from silver and return its totals."""
    now = datetime.now(UTC)
    made = refresh(store, check_key, now)
    remove_old(store, now)
    slot, _ = newest(store)
    found = None if slot is None else read_table(store, "findings", slot)
    kinds = [] if found is None else found.column("kind").to_pylist()
    return Outcome(made.statuses, Counter(kinds))
