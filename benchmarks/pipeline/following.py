"""How far `follow` is behind a node that writes 20,000 events a second.

The delay is between the time in an event's record and the moment at which a reader of silver
first sees it; the writer keeps its pace whatever the reader does.
"""

import tempfile
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from time import perf_counter, sleep, time_ns
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.pipeline.journals import Talk
from parley._pipeline.bronze import start
from parley._pipeline.jobs import end_batch
from parley._pipeline.silver import SilverStep
from parley.journal import AuditorPrivateKey
from parley.pipeline import Tables, events

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
