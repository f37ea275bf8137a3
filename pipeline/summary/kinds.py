"""The kinds of summaries (Arrow tables of counts by keys) and how to merge them.

Merging is associative: the sums don't depend on how events are divided into ranges and batches.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_TEXT: Final = pa.string()
_LONG: Final = pa.int64()
_TIME: Final = pa.timestamp("us", tz="UTC")
_FLAG: Final = pa.bool_()

Summary = Mapping[str, pa.Table]


class SummaryKind(NamedTuple):
    """A kind's columns, grouped by how merging treats them.

    The values of `firsts` come from the row whose first such column is smallest. A kind without
    keys keeps all rows.
    """

    keys: Mapping[str, pa.DataType]
    sums: Mapping[str, pa.DataType] = {}
    least: Mapping[str, pa.DataType] = {}
    most: Mapping[str, pa.DataType] = {}
    firsts: Mapping[str, pa.DataType] = {}

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the columns, keys first."""
        return pa.schema(
            [
                (name, type_)
                for part in (self.keys, self.sums, self.least, self.most, self.firsts)
                for name, type_ in part.items()
            ]
        )


_SPAN: Final = {"first": _TIME}, {"last": _TIME}
_CALL: Final = {
    "kind": _TEXT,
    "topic": _TEXT,
    "namespace": _TEXT,
    "caller": _TEXT,
    "callee": _TEXT,
    "seen_by": _TEXT,
}

KINDS: Final[dict[str, SummaryKind]] = {
    # The traffic of each minute in each journal.
    "traffic": SummaryKind(
        {
            "minute": _TIME,
            "node": _TEXT,
            "peer": _TEXT,
            "topic": _TEXT,
            "namespace": _TEXT,
            "label": _TEXT,
            "direction": _TEXT,
        },
        dict.fromkeys(("events", "notes", "ok", "wire_bytes", "payload_bytes"), _LONG),
    ),
    # The events of each direction of a session in each journal.
    "directions": SummaryKind(
        dict.fromkeys(("session", "sender", "receiver", "direction"), _TEXT),
        {"events": _LONG, "wire_bytes": _LONG},
        *_SPAN,
    ),
    # Rows by status, their times, and the first event among them.
    "statuses": SummaryKind(
        dict.fromkeys(("journal", "session", "direction", "status"), _TEXT),
        {"rows": _LONG, "count": _LONG, "places": _LONG},
        *({"began": _TIME}, {"ended": _TIME, "last": _LONG}),
        {"place": _LONG, "time": _TIME, "segment": _TEXT, "offset": _LONG},
    ),
    "notes": SummaryKind(
        dict.fromkeys(("session", "topic", "publisher", "direction"), _TEXT),
        {"notes": _LONG, "payload_bytes": _LONG},
        *_SPAN,
    ),
    # Streams that were granted, opened, or reset because a subscriber was too slow.
    "streams": SummaryKind(
        {"session": _TEXT, "stream": _LONG, "publisher": _TEXT, "what": _TEXT},
        {},
        {"first": _TIME},
        {"topic": _TEXT, "subscriber": _TEXT},
    ),
    # Blocks of places with a checksum of their events, and the batches that contain them.
    "blocks": SummaryKind(
        {"session": _TEXT, "sender": _TEXT, "block": _LONG, "is_sent": _FLAG},
        {"count": _LONG, "check": pa.uint64()},
        {"first": _LONG, "since": _LONG},
        {"last": _LONG, "until": _LONG},
    ),
    # Calls by outcome and duration.
    "calls": SummaryKind(
        {**_CALL, "code": _LONG, "latency_us": _LONG},
        {"calls": _LONG, "parts": _LONG},
        {"first": _TIME},
        {"max_us": _LONG, "last": _TIME},
    ),
    # Requests and answers whose counterpart is in another range (`pipeline.summary.pairing`).
    "unpaired": SummaryKind(
        {},
        {},
        {},
        {},
        {
            "journal": _TEXT,
            "session": _TEXT,
            "stream": _LONG,
            "async_id": _LONG,
            "asked": _TEXT,
            "segment": _TEXT,
            "offset": _LONG,
            "role": pa.int8(),
            "parts": _LONG,
            "time": _LONG,
            "code": _LONG,
            "type": _TEXT,
            "topic": _TEXT,
            "namespace": _TEXT,
            "asker": _TEXT,
            "answerer": _TEXT,
        },
    ),
    # Rows of silver other than events, as JSON.
    "sessions": SummaryKind({}, firsts={"other": _TEXT}),
    "tunnels": SummaryKind({}, firsts={"other": _TEXT}),
    "statements": SummaryKind({}, firsts={"other": _TEXT}),
    "findings": SummaryKind({}, firsts={"other": _TEXT}),
}


def empty(name: str) -> pa.Table:
    """A table of a kind without rows."""
    return KINDS[name].schema.empty_table()


def encode_table(table: pa.Table) -> bytes:
    """Encode a table as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_table(data: bytes) -> pa.Table:
    """Decode a table from `encode_table`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def merge_summaries(summaries: Iterable[Summary]) -> dict[str, pa.Table]:
    """Merge several summaries into one that has all kinds."""
    found: dict[str, list[pa.Table]] = {name: [empty(name)] for name in KINDS}
    for summary in summaries:
        for name, table in summary.items():
            found[name].append(table)
    return {name: merge_kind(KINDS[name], pa.concat_tables(some)) for name, some in found.items()}


def merge_kind(kind: SummaryKind, table: pa.Table) -> pa.Table:
    """Merge rows of a kind so that each key has one row."""
    if not kind.keys:
        return table.cast(kind.schema)
    table, texts = _coded(kind, table)
    if kind.firsts:
        table = table.sort_by([(next(iter(kind.firsts)), "ascending")])
    first = pc.ScalarAggregateOptions(skip_nulls=False)
    query = [
        *((name, "sum", None) for name in kind.sums),
        *((name, "min", None) for name in kind.least),
        *((name, "max", None) for name in kind.most),
        *((name, "first", first) for name in kind.firsts),
    ]
    # The first row is defined by row order, which threads would not preserve.
    groups = table.group_by(list(kind.keys), use_threads=not kind.firsts).aggregate(query)
    names = [*kind.keys, *(f"{name}_{how}" for name, how, _ in query)]
    columns = [
        texts[field.name].take(column.combine_chunks()) if field.name in texts else column
        for field, column in zip(kind.schema, groups.select(names).columns, strict=True)
    ]
    return pa.table(columns, names=kind.schema.names).cast(kind.schema)


def _coded(kind: SummaryKind, table: pa.Table) -> tuple[pa.Table, dict[str, pa.Array]]:
    """Replace string columns by numbers, and return the strings."""
    texts: dict[str, pa.Array] = {}
    for at, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        column = table.column(at).combine_chunks()
        if field.name in kind.most or isinstance(column, pa.ChunkedArray):
            column = column.cast(_TEXT)  # the greatest string doesn't have the greatest number
        else:
            texts[field.name] = column.dictionary
            column = column.indices
        table = table.set_column(at, field.name, column)
    return table, texts
