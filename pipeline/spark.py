"""The one place where Spark sessions are made: local, on a cluster, or over Spark Connect.

A session has what the jobs rely on, wherever it runs: UTC, the journals' data source, Arrow, and
files whose rows stand in the order in which they were read. Jobs use data frames only, so that all
three kinds of session run the same code.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from parley._pipeline.java import find_java, shim_home
from parley._pipeline.source import JournalSource

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_MEMORY: Final = "2g"

# What the jobs rely on. A Connect server takes these too: they are the session's own.
SESSION_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Tasks write to the directories of several dates at once, instead of sorting by date,
    # which would be slow and leave no order of rows.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Tasks get whole files, of a range or some each, and about as much to do.
    "spark.sql.files.maxPartitionBytes": "48m",
    "spark.sql.files.openCostInBytes": "16m",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}

# Of every driver that this process starts.
_DRIVER_SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
}

# A stream that is stopped within a batch looks for a pattern in what Python says of it, by a few
# calls for each character: a traceback takes all of the usual megabyte, and Java says so at length.
_STACK: Final = "-Xss16m"

# Where driver and executors are one process of this machine, nothing listens to others.
_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def open_session(
    name: str = "parley",
    *,
    master: str | None = None,
    remote: str | None = None,
    memory: str = DEFAULT_MEMORY,
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session of Spark: the caller's to `stop`.

    `remote` is the address of a Spark Connect server, `sc://host:port`; otherwise the driver
    runs here, with `memory` for its Java, against `master` (all cores of this machine unless
    given). Under `spark-submit` master and memory are what that was told. `settings` go
    before those made here. Raises NoJavaError, and Spark's own errors where a server cannot
    be reached.
    """
    if remote is not None:
        session = SparkSession.builder.remote(remote).create()
        for key, value in {**SESSION_SETTINGS, **(settings or {})}.items():
            session.conf.set(key, value)
    else:
        session = _open_driver(name, master, memory, java_options, settings or {})
    session.dataSource.register(JournalSource)
    return session


def _open_driver(
    name: str, master: str | None, memory: str, java_options: str, settings: Mapping[str, str]
) -> SparkSession:
    # spark-submit has started the Java already, with its own options.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not submitted:
        master = DEFAULT_MASTER
    chosen = {**_DRIVER_SETTINGS, **SESSION_SETTINGS}
    environment = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if master is not None and master.startswith("local"):
        chosen |= _LOCAL_SETTINGS
        # Java starts the workers without this process's path: give them the parent of `parley`.
        chosen["spark.executorEnv.PYTHONPATH"] = str(Path(__file__).parents[2])
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        environment["PYSPARK_PYTHON"] = sys.executable
    if not submitted:
        log = (Path(__file__).parent / "log4j2.properties").as_uri()
        chosen["spark.driver.memory"] = memory
        chosen["spark.driver.extraJavaOptions"] = (
            f"-Dlog4j2.configurationFile={log} {_STACK} {java_options}".rstrip()
        )
        environment["JAVA_HOME"] = str(shim_home(find_java()))
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**chosen, **settings}.items():
        builder = builder.config(key, value)
    with _environment(environment), _no_java_left():
        return builder.getOrCreate()


def java_has_ended() -> bool:
    """Whether the Java that this process started for Spark has ended, or does within a second."""
    java = getattr(SparkContext._gateway, "proc", None)
    try:
        return java is not None and java.wait(1) is not None
    except TimeoutExpired:
        return False


@contextmanager
def _no_java_left() -> Iterator[None]:
    """Whoever interrupts the start leaves no Java behind. PySpark would: it takes away the file in
    which that was to say where it listens, and knows nothing of it from then on."""
    started: list[Popen[bytes]] = []
    names = vars(java_gateway)
    before = names["Popen"]

    class Started(Popen[bytes]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            started.append(self)  # first: this, too, may be interrupted
            super().__init__(*arguments, **named)

    names["Popen"] = Started
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:
            for process in (one for one in started if vars(one).get("pid")):
                process.kill()
                process.wait()
        raise
    finally:
        names["Popen"] = before


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """What PySpark reads of the environment, and its Java inherits; put back afterwards."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
