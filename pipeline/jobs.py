"""The jobs of the commands: journals to tables, once or until stopped.

Both take the same steps, and a run repairs what a killed run left undone.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter, sleep
from typing import Final

from pyarrow import ArrowException
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote
from pyspark.sql.streaming.query import StreamingQuery

from parley._pipeline.bronze import Step, ingest, start
from parley._pipeline.checkpoint import (
    REBUILD,
    batches_of,
    check_cluster,
    check_directory,
    missing_silver,
)
from parley._pipeline.errors import DamagedTablesError, IngestError, first_line
from parley._pipeline.gold.cluster import store_of
from parley._pipeline.gold.refresh import Outcome, make_gold
from parley._pipeline.silver import SilverStep
from parley._pipeline.tables import BATCH, Tables, check_key, local_directory

# Seconds between two looks at whether to stop.
_PATIENCE: Final = 1


def run(
    spark: SparkSession,
    journals: str,
    tables: str,
    private_keys: Sequence[bytes] = (),
    *,
    payloads: bool = True,
    stage: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Ingest what the journals have now, and refresh gold.

    Damaged or missing silver is made again from bronze. `private_keys` are auditors', 32 bytes
    each; `stage` is called with a description of each step. Raises IngestError, DamagedTablesError.
    """
    step = SilverStep(private_keys, payloads=payloads)
    place = Tables(spark, tables)
    repair(place, step, stage)
    stage("reading the journals, and verifying what is new")
    ingest(spark, journals, tables, steps=[step])
    joining = "joining what nodes say of each other, and the gold tables"
    stage(joining)
    try:
        return refresh(place)
    except DamagedTablesError:
        make_silver(place, step, stage)
        stage(joining)
        return refresh(place)


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
    during: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Ingest a batch `every` so many seconds until `stopped` returns True.

    Gold is refreshed every `refresh_every` seconds and at the end, then `refreshed` is called. It
    ends after a complete batch. `during` is entered with a description while the caller waits.
    Raises IngestError, DamagedTablesError.
    """
    step = SilverStep(private_keys, payloads=payloads)
    place = Tables(spark, tables)
    repair(place, step)
    query = start(spark, journals, tables, steps=[step], every=every)
    due = perf_counter() + refresh_every

    def bring_up_to_date() -> None:
        with during("bringing the gold tables up to date"):
            refresh(place)
        refreshed()

    try:
        while not stopped():
            if query.awaitTermination(_PATIENCE):
                break  # by a failure: it raises below
            if perf_counter() >= due:
                bring_up_to_date()
                due = perf_counter() + refresh_every
        with during("ending the batch that is being made"):
            end_batch(query)
        failure = query.exception()
    except PySparkException as error:
        raise IngestError(f"the journals could not be followed: {first_line(error)}") from error
    finally:
        query.stop()
    if failure is not None:
        raise IngestError(f"the journals could not be followed: {first_line(failure)}")
    bring_up_to_date()


def repair(tables: Tables, step: Step, stage: Callable[[str], None] = lambda _: None) -> None:
    """Make missing silver again before the stream continues.

    Raises DamagedTablesError: the tables don't belong to their checkpoint.
    """
    root = None if is_remote() else local_directory(tables.root)
    if root is None:
        check_cluster(tables)
        return
    checkpoint = check_directory(root)
    if checkpoint is not None and missing_silver(root, checkpoint.done):
        make_silver(tables, step, stage)


def make_silver(tables: Tables, step: Step, stage: Callable[[str], None]) -> None:
    """Make all silver again from bronze. Raises DamagedTablesError: bronze is missing."""
    root = None if is_remote() else local_directory(tables.root)
    checkpoint = None if root is None else check_directory(root)
    if root is None or checkpoint is None:
        raise DamagedTablesError(f"cannot repair silver in '{tables.root}'; {REBUILD}")
    missing = set(range(checkpoint.done + 1)) - batches_of(root, "bronze")
    if missing:
        path = root / "bronze" / f"{BATCH}={min(missing)}"
        raise DamagedTablesError(f"cannot make silver again: '{path}' is missing; {REBUILD}")
    stage("making silver again from bronze")
    try:
        for batch in range(checkpoint.done + 1):
            step(tables, batch)
    except (PySparkException, OSError, ArrowException) as error:
        raise DamagedTablesError(
            f"cannot make silver again from bronze: {first_line(error)}; {REBUILD}"
        ) from error


def end_batch(query: StreamingQuery) -> None:
    """Wait until the current batch is done, but not for one that follows immediately."""
    last = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and query.lastProgress == last:
        sleep(0.1)


def refresh(tables: Tables) -> Outcome:
    """Refresh gold from silver. Raises IngestError, which leaves the earlier tables in place."""
    try:
        return make_gold(store_of(tables), check_key(tables))
    except PySparkException as error:
        raise IngestError(f"the gold tables could not be made: {first_line(error)}") from error
