"""The store of gold, and of the silver it is made from, in a directory.

gold/NAME/slot=0|1[/date=D]/ contains a table and gold/summary/slot=0|1/ the summaries of a slot.
gold/refreshed/slot=0|1/ contains one row: when the slot was completed, and from which batches. A
batch can be made again under the same number, so a random token identifies it.

A refresh overwrites the older slot, so readers see a consistent set of tables; a reader that is
still busy after two refreshes must start again. Files of a batch that only the next batch needs are
deleted once gold includes a later batch. This module never starts Spark.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from parley._pipeline.errors import DamagedTablesError, NoTablesError
from parley._pipeline.gold.arrow import LONG, TEXT, TIME
from parley._pipeline.reconcile.events import EventQuery
from parley._pipeline.schema import EVENT, MADE, PENDING, SEGMENT, TIP, WAITING, WALKED_ARROW
from parley._pipeline.summary.facts import NEEDED
from parley._pipeline.tables import FILES

MARK: Final = "refreshed"
SUMMARY_TABLE: Final = "summary"
_DATED: Final = frozenset({"traffic"})
# Limits the number of date directories: times are not authenticated, so a forger can use many.
MAX_DATES: Final = 1_024
MARKS: Final = pa.schema(
    [(MARK, TIME), ("batch", LONG), ("made", TEXT), ("statuses", pa.map_(TEXT, LONG))]
)
# The columns of rows other than events, packed.
PACKED: Final = pa.schema(
    [("batch", LONG), ("part", TEXT), ("other", TEXT), ("payload", pa.binary())]
)
EVENT_ROWS: Final = pa.schema([WALKED_ARROW.field(name) for name in NEEDED])
_BATCH: Final = "batch="
_REPAIR: Final = (
    "remake silver with `parley pipeline run`, or everything from the journals with --rebuild"
)
# Rows read from a file at a time, and the number of batches to prefetch: together about 100 MiB.
_SCAN: Final = {"batch_size": 2**15, "batch_readahead": 4, "fragment_readahead": 2}
_FOR_THE_NEXT: Final = (PENDING, TIP, SEGMENT, WAITING)


@dataclass(frozen=True, slots=True)
class Mark:
    """The description of a complete slot: it includes all batches up to `batch`.

    `statuses` counts the events by status. `made` is the token of that batch, or None if there is
    no batch.
    """

    time: datetime
    batch: int
    made: str | None
    statuses: Counter[str]


def read_mark(table: pa.Table) -> Mark | None:
    """Read the mark from its table; return None if the table doesn't have exactly one row.

    Raises:
        NoTablesError: The tables have no summaries because an earlier version made them.
    """
    if table.schema.names != MARKS.names:
        raise NoTablesError(
            "cannot read the gold tables: an earlier version made them; remake them with "
            "`parley pipeline run --rebuild`"
        )
    if table.num_rows != 1:
        return None
    [row] = table.to_pylist()
    return Mark(row[MARK], row["batch"], row["made"], Counter(dict(row["statuses"])))


def mark_table(mark: Mark) -> pa.Table:
    statuses = sorted(mark.statuses.items())
    columns = [[mark.time], [mark.batch], [mark.made], pa.array([statuses], MARKS.types[3])]
    return pa.table(columns, schema=MARKS)


def token_of(store: "GoldStore", batch: int) -> str | None:
    """Return the token of a stitched batch, or None if it doesn't exist."""
    tokens = store.other_rows("stitched", [MADE], batch, batch).column("other").to_pylist()
    return tokens[0] if len(tokens) == 1 else None


class GoldStore(Protocol):
    """Access to silver and gold, in a directory or through Spark."""

    def last_batch(self) -> int:
        """Return the number of the last complete batch, or -1."""

    def other_rows(self, name: str, parts: Sequence[str], first: int, last: int) -> pa.Table:
        """Return the rows other than events of these batches, with the columns of `PACKED`."""

    def events(self, query: EventQuery, last: int) -> pa.Table:
        """Return the queried events, and possibly more, with the columns of `EVENT_ROWS`."""

    def scan(
        self, names: Sequence[str], last: int, sessions: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield tables with these columns of all events up to a batch, or of some sessions only."""

    def read(self, name: str, slot: int) -> pa.Table | None:
        """Read a table of a slot; return None if it doesn't exist."""

    def has(self, name: str, slot: int) -> bool:
        """Return whether a slot has a readable table; with Spark, only the schema is checked."""

    def write(self, name: str, slot: int, table: pa.Table) -> None:
        """Write a table, replacing the previous version."""

    def remove(self, slot: int, names: Iterable[str]) -> None: ...

    def forget(self, batches: Iterable[int]) -> None:
        """Delete the files of these batches that only the batch after each of them needed."""


class GoldDirectory:
    """A `GoldStore` in a directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def last_batch(self) -> int:
        batches = map(_number, self._root.joinpath("stitched").glob(f"{_BATCH}*"))
        return next((one for one in sorted(batches, reverse=True) if self._is_whole(one)), -1)

    def other_rows(self, name: str, parts: Sequence[str], first: int, last: int) -> pa.Table:
        tables = [PACKED.empty_table()]
        for batch, path in self._batches(name, first, last):
            for part in parts:
                for file in sorted(path.glob(f"part={part}/date=*/{FILES}")):
                    with _reading(file):
                        rows = pq.ParquetFile(file).read(["other", "payload"])
                    more = {"batch": batch, "part": part}
                    columns = [pa.repeat(value, rows.num_rows) for value in more.values()]
                    tables.append(pa.table([*columns, *rows.columns], schema=PACKED))
        return pa.concat_tables(tables)

    def events(self, query: EventQuery, last: int) -> pa.Table:
        final = [
            *self._events("silver", EVENT, query.first_batch, query.last_batch),
            # Events that were waiting for a seal became final in a later batch.
            *self._events("stitched", EVENT, query.first_batch, last),
        ]
        waiting = self._scanned(self._events("stitched", PENDING, last, last), query)
        status = waiting.schema.get_field_index("status")
        unsealed = pa.repeat("unsealed", waiting.num_rows)
        return pa.concat_tables(
            [self._scanned(final, query), waiting.set_column(status, "status", unsealed)]
        )

    def scan(
        self, names: Sequence[str], last: int, sessions: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        some = None if sessions is None else pc.field("session").isin(list(sessions))
        final = [*self._events("silver", EVENT, 0, last), *self._events("stitched", EVENT, 0, last)]
        for files in (final, [*self._events("stitched", PENDING, last, last)]):
            with _reading(self._root):
                data = ds.dataset(list(files), schema=WALKED_ARROW, format="parquet")
                for batch in data.to_batches(columns=list(names), filter=some, **_SCAN):
                    yield pa.Table.from_batches([batch])

    def read(self, name: str, slot: int) -> pa.Table | None:
        try:
            tables = [_dated(file.read(), path) for path, file in self._files(name, slot)]
        except (OSError, pa.ArrowInvalid):
            return None
        return pa.concat_tables(tables) if tables else None

    def has(self, name: str, slot: int) -> bool:
        return self.read(name, slot) is not None

    def write(self, name: str, slot: int, table: pa.Table) -> None:
        directory = self._slot(name, slot)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        pieces: Mapping[str, pa.Table] = {"": table}
        if is_dated(name, table):
            pieces = {f"date={one}": of for one, of in _by_date(table)}
        for piece, rows in pieces.items():
            (directory / piece).mkdir(exist_ok=True)
            hidden = directory / piece / "_part.parquet"
            pq.write_table(rows, hidden, write_page_checksum=True)
            hidden.rename(hidden.with_name("part.parquet"))

    def remove(self, slot: int, names: Iterable[str]) -> None:
        for name in names:
            shutil.rmtree(self._slot(name, slot), ignore_errors=True)

    def forget(self, batches: Iterable[int]) -> None:
        for batch in batches:
            for part in _FOR_THE_NEXT:
                old = self._root / "stitched" / f"{_BATCH}{batch}" / f"part={part}"
                shutil.rmtree(old, ignore_errors=True)

    def _is_whole(self, batch: int) -> bool:
        # A batch that is being remade has silver before it is stitched again.
        places = (self._root / name / f"{_BATCH}{batch}" for name in ("stitched", "silver"))
        return all((place / "_SUCCESS").exists() for place in places)

    def _slot(self, name: str, slot: int) -> Path:
        return self._root / "gold" / name / f"slot={slot}"

    def _files(self, name: str, slot: int) -> Iterator[tuple[Path, pq.ParquetFile]]:
        for path in sorted(self._slot(name, slot).glob(f"**/{FILES}")):
            yield path, pq.ParquetFile(path, page_checksum_verification=True)

    def _batches(self, name: str, first: int, last: int) -> Iterator[tuple[int, Path]]:
        # Build the name instead of listing the directory: `follow` creates tens of thousands a day.
        for batch in range(first, last + 1):
            path = self._root / name / f"{_BATCH}{batch}"
            if not path.is_dir():
                raise DamagedTablesError(f"cannot read '{path}': it is missing; {_REPAIR}")
            yield batch, path

    def _events(self, name: str, part: str, first: int, last: int) -> Iterator[str]:
        for _, path in self._batches(name, first, last):
            yield from map(str, path.glob(f"part={part}/date=*/{FILES}"))

    def _scanned(self, files: Iterable[str], query: EventQuery) -> pa.Table:
        with _reading(self._root):
            data = ds.dataset(list(files), schema=EVENT_ROWS, format="parquet")
            # Release each piece immediately, because there can be much more data between two
            # blocks.
            batches = data.to_batches(
                filter=pc.field("session").isin(list(query.sessions))
                & (pc.field("place") >= query.first_place)
                & (pc.field("place") <= query.last_place),
                **_SCAN,
            )
            some = [query.among(pa.Table.from_batches([one])) for one in batches if one.num_rows]
        return pa.concat_tables([EVENT_ROWS.empty_table(), *some])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise DamagedTablesError where a file of silver cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        # Arrow's message names the file if the data set has several.
        raise DamagedTablesError(f"cannot read '{path}': {error}; {_REPAIR}") from error


def is_dated(name: str, table: pa.Table) -> bool:
    return name in _DATED and 0 < pc.count_distinct(table.column("date")).as_py() <= MAX_DATES


def _number(path: Path) -> int:
    text = path.name.removeprefix(_BATCH)
    return int(text) if text.isdigit() else -1


def _by_date(table: pa.Table) -> Iterator[tuple[Any, pa.Table]]:
    dates = table.column("date")
    for date in pc.unique(dates):
        yield date.as_py(), table.filter(pc.equal(dates, date)).drop_columns(["date"])


def _dated(table: pa.Table, file: Path) -> pa.Table:
    """Add the column `date` from the file's directory name, if it has one."""
    name, _, value = file.parent.name.partition("=")
    if name != "date":
        return table
    date = pa.scalar(value).cast(pa.date32())
    return table.add_column(0, "date", pa.repeat(date, table.num_rows))
