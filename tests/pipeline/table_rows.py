"""The rows of two directories of tables, to compare them."""

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from parley._pipeline.tables import FILES

# They differ in every run: when gold was made, and the token of a batch.
_TIMES: Final = ("refreshed",)
_MADE: Final = "part=made"


def rows_of(tables: Path) -> dict[str, list[str]]:
    """Return the sorted rows of all tables, by the directory of their files.

    Tables of the same journals have the same rows if they have the same `checks`.
    """
    rows: dict[str, list[str]] = {}
    for path in sorted(tables.rglob(FILES)):
        place = path.parent.relative_to(tables)
        if _MADE in place.parts or place.parts[:2] == ("gold", "refreshed"):
            continue
        table = pq.ParquetFile(path).read()
        table = table.drop_columns([name for name in _TIMES if name in table.column_names])
        columns = [sorted(table.column_names)] * table.num_rows
        rows.setdefault(str(place), []).extend(
            repr([row[name] for name in names])
            for names, row in zip(columns, table.to_pylist(), strict=True)
        )
    return {place: sorted(one) for place, one in rows.items()}
