"""Tables: written batch by batch, read whole, by batch, or not there yet."""

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from parley._pipeline.schema import BRONZE
from parley._pipeline.tables import Tables

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.jvm]

SCHEMA = StructType().add("number", "long").add("kind", "string").add("date", "date")


def test_a_table(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, f"{tmp_path}/")
    assert tables.checkpoint == f"{tmp_path}/_checkpoint"
    assert tables.read("things", SCHEMA).columns == ["number", "kind", "date", "batch"]
    assert tables.read("things", SCHEMA).count() == 0
    assert tables.bronze().columns == [*BRONZE.fieldNames(), "batch"]
    day = date(2025, 11, 14)
    for batch, number in ((0, 1), (1, 2), (1, 3)):
        frame = spark.createDataFrame([(number, "a", day), (number + 10, "b", day)], SCHEMA)
        tables.write_batch("things", batch, frame.coalesce(1), ["kind", "date"])
    read = tables.read("things", SCHEMA)
    assert read.columns == ["number", "kind", "date", "batch"]
    assert sorted(tuple(row) for row in read.collect()) == [
        (1, "a", day, 0),
        (3, "a", day, 1),
        (11, "b", day, 0),
        (13, "b", day, 1),
    ]
    assert sorted(row.number for row in tables.read("things", SCHEMA, 1).collect()) == [3, 13]
    assert tables.read("things", SCHEMA, 2).count() == 0
