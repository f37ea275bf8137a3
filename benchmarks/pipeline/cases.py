"""The measurements of the pipeline: a plain pool of processes, `follow`, and small journals.

The plain pool does the work of silver without Spark: it reads the files of bronze, audits them with
the same function and writes the same columns, so the difference is Spark. `follow` measures the
delay between the time in an event's record and when a reader of silver first sees it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from time import perf_counter, sleep, time_ns
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.pipeline.journals import Talk, make_journals
from parley._crypto.keyfile import save_auditor_key
from parley._pipeline.audit_task import make_audit_task
from parley._pipeline.bronze import start
from parley._pipeline.jobs import end_batch
from parley._pipeline.schema import WALKED_ARROW
from parley._pipeline.silver import SilverStep, read_file
from parley.journal import AuditorPrivateKey
from parley.pipeline import Tables, events


@contextmanager
def plain_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are all there."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(sleep, [1.0] * processes))
        yield pool


def audit_files(pool: ProcessPoolExecutor, bronze: Path, out: Path, private_key: bytes) -> int:
    """Walk all files of bronze; returns how many rows were written."""
    files = sorted(bronze.rglob("*.parquet"))
    out.mkdir()
    jobs = [
        pool.submit(_walk_file, path, out / f"{number}.parquet", private_key)
        for number, path in enumerate(files)
    ]
    return sum(job.result() for job in jobs)


def _walk_file(path: Path, out: Path, private_key: bytes) -> int:
    count = 0
    walk = make_audit_task([private_key], payloads=True, check_key=bytes(16))
    with pq.ParquetWriter(out, WALKED_ARROW, compression="snappy") as writer:
        for batch in walk(read_file(str(path))):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


RATE: Final = 20_000
_TICK: Final = 0.05


def follow(spark: SparkSession, seconds: float, rate: int = RATE) -> list[float]:
    """Follow a journal that grows for so many seconds; returns the delays seen, in seconds."""
    context = get_context("spawn")
    stop = context.Event()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "journals").mkdir()
        key = AuditorPrivateKey.create().private_bytes()
        writer = context.Process(target=_write, args=(place / "journals", key, rate, stop))
        writer.start()
        tables = Tables(spark, str(place / "tables"))
        query = start(
            spark, str(place / "journals"), tables.root, steps=[SilverStep([key])], every=1.0
        )
        try:
            return _delays(tables, seconds)
        finally:
            end_batch(query)
            query.stop()
            stop.set()
            writer.join()


def _delays(tables: Tables, seconds: float) -> list[float]:
    delays: list[float] = []
    end = perf_counter() + seconds
    while perf_counter() < end:
        newest = events(tables).select(f.max(f.unix_micros("time")).alias("t")).collect()[0]["t"]
        if newest is not None:
            delays.append(time_ns() / 1e9 - newest / 1e6)
        sleep(1)
    return delays


def _write(directory: Path, key: bytes, rate: int, stop: Event) -> None:
    journal = Talk(directory, AuditorPrivateKey(key), clock=time_ns)
    began, written = perf_counter(), 0
    while not stop.is_set():
        due = int((perf_counter() - began) * rate) - written
        if due > 0:
            journal.send(due)
            written += due
        sleep(_TICK)
    journal.end()


def small(count: int, cores: int) -> dict[str, float]:
    """Return the seconds of each command with this many events; `again` has no new data."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "journals").mkdir()
        save_auditor_key(place / "auditor.key", make_journals(place / "journals", count))
        run = ["run", "--journals", "journals", "--tables", "tables", "--auditor-key"]
        run += ["auditor.key", "--master", f"local[{cores}]"]
        report = ["report", "--tables", "tables", "--html", "report.html"]
        return {
            title: _timed(place, *command)
            for title, command in (("run", run), ("again", run), ("report", report))
        }


def _timed(place: Path, *command: str) -> float:
    began = perf_counter()
    arguments = [sys.executable, "-m", "parley", "pipeline", *command]
    subprocess.run(arguments, cwd=place, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - began
