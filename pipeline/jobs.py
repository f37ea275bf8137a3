"""What the commands do: journals to tables, once or until stopped, and the report.

Both ways take the same steps, and a run makes good what a killed one before it left undone.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.bronze import ingest, start
from pipeline.errors import IngestError, NoTablesError, first_line
from pipeline.gold.refresh import gold_tables, read_all_gold, read_gold, write_gold
from pipeline.report.page import report
from pipeline.silver import SilverStep, events, findings, sessions, tunnels
from pipeline.tables import Tables

# Seconds between two looks at whether to stop.
_PATIENCE: Final = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tables hold now: `events` by status, `findings` by kind."""

    events: Counter[str]
    findings: Counter[str]


def run(
    spark: SparkSession,
    journals: str,
    tables: str,
    private_keys: Sequence[bytes] = (),
    *,
    payloads: bool = True,
) -> Outcome:
    """Take in what the journals have now, and make gold of all of it.

    `private_keys` are auditors', 32 bytes each. Raises IngestError.
    """
    step = SilverStep(private_keys, payloads=payloads)
    ingest(spark, journals, tables, steps=[step])
    place = Tables(spark, tables)
    refresh(place)
    statuses = events(place).groupBy("status").count().collect()
    kinds = read_gold(spark, tables, "findings")
    found = [] if kinds is None else kinds.groupBy("kind").agg(f.count("*").alias("n")).collect()
    return Outcome(
        Counter({row["status"]: row["count"] for row in statuses}),
        Counter({row["kind"]: row["n"] for row in found}),
    )


def follow(
    spark: SparkSession,
    journals: str,
    tables: str,
    private_keys: Sequence[bytes] = (),
    *,
    payloads: bool = True,
    every: float,
    refresh_every: float,
    stopped: Callable[[], bool],
    refreshed: Callable[[], None],
) -> None:
    """Take in what comes, a batch `every` so many seconds, until `stopped` says so.

    Gold is made anew every `refresh_every` seconds, and at the end; `refreshed` is called
    then. It ends behind a batch, so that gold has whole ones. Raises IngestError.
    """
    step = SilverStep(private_keys, payloads=payloads)
    place = Tables(spark, tables)
    query = start(spark, journals, tables, steps=[step], every=every)
    due = perf_counter() + refresh_every
    try:
        while not stopped():
            if query.awaitTermination(_PATIENCE):
                break  # by a failure: it raises below
            if perf_counter() >= due:
                refresh(place)
                refreshed()
                due = perf_counter() + refresh_every
        end_batch(query)
        failure = query.exception()
    except PySparkException as error:
        raise IngestError(f"the journals could not be followed: {first_line(error)}") from error
    finally:
        query.stop()
    if failure is not None:
        raise IngestError(f"the journals could not be followed: {first_line(failure)}")
    refresh(place)
    refreshed()


def end_batch(query: StreamingQuery) -> None:
    """Wait until the batch that is being made is done; one that follows at once is not."""
    last = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and query.lastProgress == last:
        sleep(0.1)


def refresh(tables: Tables) -> None:
    """Make the gold tables anew of silver. Raises IngestError; those of before are still there."""
    try:
        silver = events(tables), sessions(tables), findings(tables), tunnels(tables)
        write_gold(tables.spark, tables.root, gold_tables(*silver), datetime.now(UTC))
    except PySparkException as error:
        raise IngestError(f"the gold tables could not be made: {first_line(error)}") from error


def write_report(spark: SparkSession, tables: str, path: Path) -> None:
    """Write the report of the gold tables as one HTML file, whole or not at all.

    Raises NoTablesError without tables; OSError.
    """
    gold = read_all_gold(spark, tables)
    if gold is None:
        raise NoTablesError(f"there are no tables in {tables}: `parley pipeline run` makes them")
    page = report(gold)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as file:
        try:
            file.write(page)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
