"""Stitching in this process, for small batches in a local directory.

For most batches, starting a Spark job would take longer. Spark handles larger batches; both use
`stitch_rows`.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parley._pipeline.dated_files import limit_dates
from parley._pipeline.schema import PENDING, SEGMENT, SPAN, TIP, WALKED_ARROW
from parley._pipeline.stitch.rows import batch_token_row, stitch_rows
from parley._pipeline.tables import FILES

# Bytes of rows that are read at a time; they take about three times as much memory.
MOST_BYTES: Final = 2**27
# Columns with one value for all rows of a file: IDs and names.
_ROW_BYTES: Final = 500

_TEXTS: Final = ("journal", "session", "direction", "segment")
_ORDER: Final = ("journal", "session", "last", "direction", "segment", "offset")
# Columns encoded in directory names.
_NAMED: Final = ("part", "date")


def stitch_locally(root: Path, batch: int) -> bool:
    """Write the stitched rows of a batch whose silver exists; return False if it is too large.

    As with Spark, the directory appears only when it is complete, replacing the earlier one.
    """
    found = {
        part: [*_files(root / "silver", batch, here), *_files(root / "stitched", batch - 1, before)]
        for part, here, before in (
            (SEGMENT, SEGMENT, SEGMENT),
            (SPAN, SPAN, None),
            (TIP, None, TIP),
            (PENDING, PENDING, PENDING),
        )
    }
    if sum(_size(path) for paths in found.values() for path in paths) > MOST_BYTES:
        return False
    files = [(part, path) for part, paths in found.items() for path in paths]
    batches = [rows for part, path in files for rows in _read(path, part)]
    place = root / "stitched" / f"batch={batch}"
    hidden = place.with_name(f"_{place.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    for number, rows in enumerate(stitch_rows(sort_rows(batches))):
        _write(hidden, number, rows)
    _write(hidden, 0, batch_token_row())
    (hidden / "_SUCCESS").touch()
    shutil.rmtree(place, ignore_errors=True)
    hidden.rename(place)
    return True


def sort_rows(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Sort rows in the order in which `stitch` has Spark sort them for `stitch_rows`."""
    rows = pa.Table.from_batches(batches, WALKED_ARROW).combine_chunks()
    keys = {name: pc.fill_null(rows.column(name), "") for name in _TEXTS}
    keys |= {"last": pc.equal(rows.column("part"), PENDING), "offset": rows.column("offset")}
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in _ORDER])
    sorted_: list[pa.RecordBatch] = rows.take(order).combine_chunks().to_batches()
    return sorted_


def _files(table: Path, batch: int, part: str | None) -> list[Path]:
    if part is None:
        return []
    return sorted(table.glob(f"batch={batch}/part={part}/date=*/{FILES}"))


def _size(path: Path) -> int:
    """Estimate the size of a file's rows in memory; repeated payloads make the file much
    smaller.
    """
    about = pq.read_metadata(path)
    groups = [about.row_group(at).total_byte_size for at in range(about.num_row_groups)]
    return int(sum(groups) + about.num_rows * _ROW_BYTES)


def _read(path: Path, part: str) -> list[pa.RecordBatch]:
    """Read a file's rows with the columns of `WALKED` except the date."""
    rows = pq.ParquetFile(path).read()
    rows = rows.append_column("part", pa.repeat(part, rows.num_rows))
    rows = rows.append_column("date", rows.column("time").cast(pa.date32()))
    found: list[pa.RecordBatch] = rows.select(WALKED_ARROW.names).cast(WALKED_ARROW).to_batches()
    return found


def _write(place: Path, number: int, rows: pa.RecordBatch) -> None:
    """Write rows of one part to a file for each date."""
    if not rows.num_rows:
        return
    part, dates = rows.column("part")[0].as_py(), limit_dates(rows.column("date"))
    for date in pc.unique(dates):
        some = rows.filter(pc.equal(dates, date)).drop_columns(list(_NAMED))
        directory = place / f"part={part}" / f"date={date}"
        directory.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches([some])
        # Each payload is stored separately, as `_size` assumes.
        once = [name for name in table.schema.names if name != "payload"]
        pq.write_table(table, directory / f"{number:05d}.parquet", use_dictionary=once)
