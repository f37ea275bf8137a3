"""A program that ingests journals, for tests that kill it.

    python -m tests.pipeline.ingest_program JOURNALS TABLES [--hang-in N FILE]

It prints the home directory of Spark's Java, and the number of rows of bronze.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parley._pipeline.bronze import Step, ingest
from parley._pipeline.silver import SilverStep
from parley._pipeline.spark import open_session
from parley._pipeline.tables import Tables
from tests.pipeline.conftest import JAVA_OPTIONS


@dataclass(frozen=True)
class Hang:
    """A step that reports that a batch is in bronze, and then hangs."""

    batch: int
    file: str

    def __call__(self, tables: Tables, batch: int) -> None:
        if batch == self.batch:
            Path(self.file).touch()
            time.sleep(600)


@dataclass(frozen=True)
class Count:
    """A step that writes a table of how many rows each segment has in the batch."""

    def __call__(self, tables: Tables, batch: int) -> None:
        tables.write_batch("counts", batch, tables.bronze(batch).groupBy("segment", "date").count())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("journals")
    parser.add_argument("tables")
    parser.add_argument("--hang-in", nargs=2)
    told = parser.parse_args(arguments)
    steps: list[Step] = [Count(), SilverStep()]
    if told.hang_in:
        steps.append(Hang(int(told.hang_in[0]), told.hang_in[1]))
    spark = open_session(master="local[2]", memory="1g", java_options=JAVA_OPTIONS)
    home = spark.sql("select java_method('java.lang.System', 'getProperty', 'java.home')").first()
    print(*home or (), flush=True)
    ingest(spark, told.journals, told.tables, steps=steps, max_files=1)
    print(Tables(spark, told.tables).bronze().count())
    spark.stop()


if __name__ == "__main__":
    main()
