"""The jobs of the commands: they turn journals into tables, once or until stopped.

Both run the same steps, and a run completes anything that a killed run left unfinished.
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

# Seconds between two checks of whether to stop.
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
    """Ingest the new records of the journals, refresh the gold tables and return their totals.

    Damaged or missing silver is remade from bronze. `journals` is a directory or a pattern, and
    `tables` the directory to write to. `private_keys` are auditors' private keys of 32 bytes each;
    without one, payloads and topics stay encrypted. With `payloads=False` payloads are not stored.
    `stage` is called with a description of each step.

    Raises:
        IngestError: A Spark job failed.
        DamagedTablesError: The tables don't match their checkpoint, or bronze is missing.
    """
    step = SilverStep(private_keys, payloads=payloads)
    place = Tables(spark, tables)
    repair(place, step, stage)
    stage("reading the journals and verifying new records")
    ingest(spark, journals, tables, steps=[step])
    joining = "comparing the nodes' journals and making the gold tables"
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
    """Ingest a batch `every` seconds until `stopped` returns True.

    Gold is refreshed every `refresh_every` seconds and at the end; each time `refreshed` is called.
    The job stops after a complete batch. `during` is entered with a description during steps that
    keep the user waiting.

    Raises:
        IngestError: A Spark job failed.
        DamagedTablesError: The tables don't match their checkpoint, or bronze is missing.
    """
    step = SilverStep(private_keys, payloads=payloads)
    place = Tables(spark, tables)
    repair(place, step)
    query = start(spark, journals, tables, steps=[step], every=every)
    due = perf_counter() + refresh_every

    def bring_up_to_date() -> None:
        with during("refreshing the gold tables"):
            refresh(place)
        refreshed()

    try:
        while not stopped():
            if query.awaitTermination(_PATIENCE):
                break  # the stream failed; the error is raised below
            if perf_counter() >= due:
                bring_up_to_date()
                due = perf_counter() + refresh_every
        with during("finishing the current batch"):
            end_batch(query)
        failure = query.exception()
    except PySparkException as error:
        raise IngestError(
            f"cannot follow the journals in {journals!r}: {first_line(error)}"
        ) from error
    finally:
        query.stop()
    if failure is not None:
        raise IngestError(f"cannot follow the journals in {journals!r}: {first_line(failure)}")
    bring_up_to_date()


def repair(tables: Tables, step: Step, stage: Callable[[str], None] = lambda _: None) -> None:
    """Remake missing silver before the stream continues.

    Raises:
        DamagedTablesError: The tables don't belong to their checkpoint.
    """
    root = None if is_remote() else local_directory(tables.root)
    if root is None:
        check_cluster(tables)
        return
    checkpoint = check_directory(root)
    if checkpoint is not None and missing_silver(root, checkpoint.done):
        make_silver(tables, step, stage)


def make_silver(tables: Tables, step: Step, stage: Callable[[str], None]) -> None:
    """Remake all silver from bronze.

    Raises:
        DamagedTablesError: Bronze is missing.
    """
    root = None if is_remote() else local_directory(tables.root)
    checkpoint = None if root is None else check_directory(root)
    if root is None or checkpoint is None:
        raise DamagedTablesError(
            f"cannot repair silver in '{tables.root}': it needs a local directory with a "
            f"checkpoint; {REBUILD}"
        )
    missing = set(range(checkpoint.done + 1)) - batches_of(root, "bronze")
    if missing:
        path = root / "bronze" / f"{BATCH}={min(missing)}"
        raise DamagedTablesError(f"cannot remake silver: '{path}' is missing; {REBUILD}")
    stage("remaking silver from bronze")
    try:
        for batch in range(checkpoint.done + 1):
            step(tables, batch)
    except (PySparkException, OSError, ArrowException) as error:
        raise DamagedTablesError(
            f"cannot remake silver from bronze: {first_line(error)}; {REBUILD}"
        ) from error


def end_batch(query: StreamingQuery) -> None:
    """Wait for the current batch to finish, but not for a batch that starts immediately after
    it.
    """
    last = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and query.lastProgress == last:
        sleep(0.1)


def refresh(tables: Tables) -> Outcome:
    """Refresh gold from silver.

    Raises:
        IngestError: The Spark job failed; the earlier tables remain in place.
    """
    try:
        return make_gold(store_of(tables), check_key(tables))
    except PySparkException as error:
        raise IngestError(
            f"cannot make the gold tables in {tables.root!r}: {first_line(error)}"
        ) from error
