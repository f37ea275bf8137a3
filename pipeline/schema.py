"""The columns of bronze: the raw records of journals, as rows.

One rule: a column is defined here, once for Spark and once for Arrow, in this order. What
the later tables have is defined beside what makes them.
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

# What stands in `status` besides what node.journal.records has (ok, bad-crc, bad-length, torn).
UNREADABLE: Final = "unreadable"
FOREIGN: Final = "foreign"

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
