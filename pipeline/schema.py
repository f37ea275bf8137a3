"""The columns of bronze and silver, defined once for Spark and Arrow.

Bronze contains the raw records of journals. Silver's first columns are those of events. An audit
writes all its rows in one pass, so rows of sessions, tunnels, statements, findings and spans use
the same columns where they match. The complete rows are in `other` as JSON. Readers use separate
tables with their own columns (`pipeline.tables`).
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

# Values of `status` in addition to those of node.journal.records (ok, bad-crc, bad-length, torn).
UNREADABLE: Final = "unreadable"
FOREIGN: Final = "foreign"
# Of the row that a task returns in place of the records that it wrote; not in the tables.
WRITTEN: Final = "written"

_TYPES: Final[list[tuple[str, DataType, pa.DataType]]] = [
    ("journal", StringType(), pa.string()),
    ("segment", StringType(), pa.string()),
    ("number", IntegerType(), pa.int32()),
    ("offset", LongType(), pa.int64()),
    ("size", LongType(), pa.int64()),
    ("kind", IntegerType(), pa.int32()),
    ("time", TimestampType(), pa.timestamp("us", tz="UTC")),
    ("time_ns", LongType(), pa.int64()),
    ("session", LongType(), pa.int64()),
    ("direction", IntegerType(), pa.int32()),
    ("body", BinaryType(), pa.binary()),
    ("status", StringType(), pa.string()),
    ("range_start", LongType(), pa.int64()),
    ("block_start", LongType(), pa.int64()),
    ("lead", BooleanType(), pa.bool_()),
    ("date", DateType(), pa.date32()),
]

BRONZE: Final = StructType([StructField(name, spark) for name, spark, _ in _TYPES])
BRONZE_ARROW: Final = pa.schema([(name, arrow) for name, _, arrow in _TYPES])


# The types of rows: values of the partition column `part`.
EVENT: Final = "event"
PENDING: Final = "pending"  # an event that no seal covers yet
SESSION: Final = "session"
FINDING: Final = "finding"
SPAN: Final = "span"
TUNNEL: Final = "tunnel"
STATEMENT: Final = "statement"
SEGMENT: Final = "segment"  # the start of a segment
SUMMARY: Final = "summary"  # input for gold: kinds of `pipeline.summary`, as Arrow in `payload`
# In the stitched table: the last span of each direction that continues. Its rows of segments are
# the last segment of each run.
TIP: Final = "tip"
MADE: Final = "made"  # a random token that identifies this version of the batch
WAITING: Final = "waiting"  # the summary of events that no seal covers yet

_STRING = StringType(), pa.string()
_LONG = LongType(), pa.int64()
_INT = IntegerType(), pa.int32()
_BINARY = BinaryType(), pa.binary()
_TIME = TimestampType(), pa.timestamp("us", tz="UTC")
_DATE = DateType(), pa.date32()

_EVENT_TYPES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "journal": _STRING,
    "segment": _STRING,
    "session": _STRING,
    "direction": _STRING,
    "sender": _STRING,
    "receiver": _STRING,
    "offset": _LONG,
    "place": _LONG,
    "time": _TIME,
    "stream": _LONG,
    "wire_size": _INT,
    "blob_size": _INT,
    "digest": _BINARY,
    "async_id": _INT,
    "category": _INT,
    "subcategory": _INT,
    "type": _STRING,
    "topic": _STRING,
    "namespace": _STRING,
    "label": _STRING,
    "code": _LONG,
    "opens": _LONG,
    "request": _LONG,
    "payload_size": _INT,
    "payload": _BINARY,
    "inside": _INT,
    "item": _INT,
    "items": _INT,
    "status": _STRING,
    "seal_delay_us": _LONG,
}
_MORE_TYPES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "other": _STRING,
    "part": _STRING,
    "date": _DATE,
}


def _spark(types: dict[str, tuple[DataType, pa.DataType]]) -> StructType:
    return StructType([StructField(name, spark) for name, (spark, _) in types.items()])


EVENTS: Final = _spark({**_EVENT_TYPES, "date": _DATE})
WALKED: Final = _spark({**_EVENT_TYPES, **_MORE_TYPES})
WALKED_ARROW: Final = pa.schema(
    [(name, arrow) for name, (_, arrow) in {**_EVENT_TYPES, **_MORE_TYPES}.items()]
)

_BOOLEAN = BooleanType()
_S, _L = StringType(), LongType()

# The fields of rows in `other`.
SESSION_FIELDS: Final[dict[str, DataType]] = {
    "journal": _S,
    "segment": _S,
    "session": _S,
    "offset": _L,
    "time_ns": _L,
    "what": _S,
    "initiator": _BOOLEAN,
    "local_node": _S,
    "remote_node": _S,
    "local_role": _S,
    "remote_role": _S,
    "address": _S,
    "suite": _S,
    "started_ns": _L,
    "direction": _S,
    "epoch": _L,
    "generation": _L,
    "code": _L,
    "text": _S,
    "remote": _BOOLEAN,
    "received_place": _L,
    "sent_place": _L,
    "resumption": _L,
}
TUNNEL_FIELDS: Final[dict[str, DataType]] = {
    "journal": _S,
    "segment": _S,
    "offset": _L,
    "time_ns": _L,
    "trace": _S,
    "hop": _L,
    "length": _L,
    "before": _S,
    "after": _S,
    "began_ns": _L,
    "ended_ns": _L,
    "forward": _L,
    "back": _L,
}
STATEMENT_FIELDS: Final[dict[str, DataType]] = {
    "journal": _S,
    "segment": _S,
    "session": _S,
    "offset": _L,
    "time_ns": _L,
    "direction": _S,
    "presenter": _S,
    "number": _L,
    "status": _S,
    "kind": _S,
    "origin": _S,
    "successor": _S,
    "by_recovery": _BOOLEAN,
    "made_ms": _L,
}
FINDING_FIELDS: Final[dict[str, DataType]] = {
    "kind": _S,
    "journal": _S,
    "segment": _S,
    "session": _S,
    "direction": _S,
    "place": _L,
    "time_ns": _L,
    "offset": _L,
    "count": _L,
    "evidence": _S,
}
SPAN_FIELDS: Final[dict[str, DataType]] = {
    "journal": _S,
    "segment": _S,
    "offset": _L,
    "session": _S,
    "direction": _S,
    "start_chain": _S,
    "start_place": _L,
    "end_segment": _S,
    "end_offset": _L,
    "end_chain": _S,
    "end_place": _L,
    "pending": _L,
    "unplaced": _L,
    "sealed_ns": _L,
    "start_state": _S,
    "end_state": _S,
    "started": _BOOLEAN,
    "ended": _BOOLEAN,
    "lost": _BOOLEAN,
}


def fields(types: dict[str, DataType]) -> StructType:
    """Return a struct type of nullable fields."""
    return StructType([StructField(name, kind) for name, kind in types.items()])
