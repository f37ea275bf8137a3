"""Write the rows of an audit to Parquet files, with the columns of the pipeline's silver tables.

Rows are written in groups to limit memory. Only the owner can read the files, because they contain
decrypted data. This module requires pyarrow, from the extra `pipeline`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from parley._node.cli.journal.segments import AuditBatch
from parley._node.errors import FileError
from parley._node.journal.audit.rows import (
    EVENT_COLUMNS,
    Finding,
    SessionRow,
    StatementRow,
    TunnelRow,
)

GROUP_ROWS: Final = 50_000
GROUP_SIZE: Final = 1 << 25  # bytes of payloads that cause a group to be written early

_LARGEST: Final = 2**63 - 1
_US_A_DAY: Final = 86_400 * 10**6
_PAYLOAD_AT: Final = EVENT_COLUMNS.index("payload")

_LONG: Final = frozenset(
    {"offset", "place", "stream", "code", "opens", "request", "seal_delay_us"}
    | {"count", "received_place", "sent_place", "resumption", "epoch", "generation"}
    | {"hop", "length", "forward", "back", "made_ms"}
)
_INT: Final = frozenset(
    {"wire_size", "blob_size", "payload_size", "async_id", "category", "subcategory"}
    | {"inside", "item", "items", "number"}
)
_BYTES: Final = frozenset({"digest", "payload"})
_FLAGS: Final = frozenset({"initiator", "remote", "by_recovery"})
_TIMES: Final = {
    "time_ns": "time",
    "started_ns": "started",
    "began_ns": "began",
    "ended_ns": "ended",
}


class ParquetFiles:
    """The files `events`, `sessions`, `tunnels`, `statements` and `findings`, all `.parquet`, in a
    directory.

    The files get their final names if the block ends without an error; otherwise they are removed.
    `written` then has the number of rows of each file.
    """

    def __init__(self, directory: Path) -> None:
        """Create the files; raises FileError if one exists, and OSError."""
        self.written: dict[Path, int] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        columns = {
            "events": EVENT_COLUMNS,
            "sessions": SessionRow._fields,
            "tunnels": TunnelRow._fields,
            "statements": StatementRow._fields,
            "findings": tuple(field.name for field in fields(Finding)),
        }
        paths = {name: directory / f"{name}.parquet" for name in columns}
        for path in paths.values():
            if path.exists():
                raise FileError(f"cannot write '{path}': the file exists already")
        self._tables = [_Table(paths[name], names) for name, names in columns.items()]

    def __enter__(self) -> "ParquetFiles":
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for table in self._tables:
            table.close(keep=error is None)
            self.written[table.path] = table.count

    def add(self, piece: AuditBatch) -> None:
        size = sum(len(row[_PAYLOAD_AT] or b"") for row in piece.events)
        events, sessions, tunnels, statements, findings = self._tables
        events.add(piece.events, size)
        sessions.add(piece.sessions, 0)
        tunnels.add(piece.tunnels, 0)
        statements.add(piece.statements, 0)
        findings.add(map(astuple, piece.findings), 0)


class _Table:
    """One file, written under another name until it is complete."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.count = 0
        self._part = path.with_name(path.name + ".part")
        self._columns = columns
        self._schema = schema(columns)
        self._rows: list[Sequence[Any]] = []
        self._size = 0
        self._part.unlink(missing_ok=True)
        self._part.touch(0o600, exist_ok=False)
        self._writer = pq.ParquetWriter(self._part, self._schema, compression="zstd")

    def add(self, rows: Iterable[Sequence[Any]], size: int) -> None:
        self._rows += rows
        self._size += size
        if len(self._rows) >= GROUP_ROWS or self._size >= GROUP_SIZE:
            self._write()

    def close(self, *, keep: bool) -> None:
        if keep:
            self._write()
        self._writer.close()
        if keep:
            self._part.rename(self.path)
        else:
            self._part.unlink()

    def _write(self) -> None:
        if not self._rows:
            return
        columns = list(zip(*self._rows, strict=True))
        arrays = []
        for name, values in zip(self._columns, columns, strict=True):
            if name in _TIMES:
                values = tuple(None if time is None else time // 1000 for time in values)
            arrays.append(arrow_array(values, self._schema.field(_TIMES.get(name, name)).type))
        times = columns[self._columns.index("time_ns")]
        days = [None if time is None else time // 1000 // _US_A_DAY for time in times]
        arrays.append(pa.array(days, pa.int32()).cast(pa.date32()))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self.count += len(self._rows)
        self._rows, self._size = [], 0


def schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a table with these columns and `date`. Times are in microseconds,
    UTC.
    """
    named = [(_TIMES.get(name, name), _type(name)) for name in columns]
    return pa.schema([*named, ("date", pa.date32())])


def _type(name: str) -> pa.DataType:
    if name in _TIMES:
        return pa.timestamp("us", tz="UTC")
    if name in _LONG:
        return pa.int64()
    if name in _INT:
        return pa.int32()
    if name in _BYTES:
        return pa.binary()
    return pa.bool_() if name in _FLAGS else pa.string()


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowInvalid):
        # A journal may contain any u64, but columns are signed.
        if not pa.types.is_int64(kind):
            raise
        return pa.array([v if v is None else min(v, _LARGEST) for v in values], kind)
