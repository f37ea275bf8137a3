"""The Spark session of a command, and the directories of journals and tables.

Spark is imported only when a command needs it.
"""

import fcntl
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from parley._node.cli.logging_setup import set_up_logging
from parley._node.errors import ConfigError, FileError, UnreachableError
from parley._node.logs import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from parley._pipeline.gold.refresh import Outcome
    from parley._pipeline.gold.store import GoldStore


_CONNECT_PORT = 15002
_STANDALONE = "spark://"
# Java recompiles frequently used code with more optimisations, which takes a third of its time if
# there is little to do.
_BRIEF = "-XX:TieredStopAtLevel=1"
_SMALL = 2**28  # total bytes of journals
_PATIENCE = 10  # seconds to wait for a server
LOCK = ".lock"  # file in the directory of tables, locked by the command that writes them


@contextmanager
def spark_session(
    master: str | None, remote: str | None, memory: str, *, brief: bool = False
) -> Iterator["SparkSession"]:
    """Open a Spark session. With `brief`, skip Java's expensive optimisations.

    Raises:
        ConfigError: a missing extra, or invalid options. NoJavaError.
        UnreachableError: a server does not answer, or Java ended early.
    """
    if master is not None and remote is not None:
        raise ConfigError(
            f"cannot use --master {master} with --remote {remote}: leave one of the options out"
        )
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from parley._pipeline.spark import java_has_ended, open_session
    except ImportError as error:
        raise without_extra(error) from error
    if remote is not None:
        _check_server(remote)
    if master is not None and master.startswith(_STANDALONE):
        _check_master(master)
    with _tracebacks_unlogged():
        try:
            session = open_session(
                master=master, remote=remote, memory=memory, java_options=_BRIEF if brief else ""
            )
        except PySparkException as error:
            if error.getCondition() == "JAVA_GATEWAY_EXITED":
                raise ConfigError(
                    "cannot start Spark: its Java process ended early, for the reason above; "
                    f"check that --memory {memory} is a valid size and available on this machine"
                ) from error
            raise UnreachableError(f"cannot open a Spark session: {_first_line(error)}") from error
        except Py4JError as error:
            if master is None or not master.startswith(_STANDALONE):
                raise
            raise UnreachableError(
                f"cannot use the Spark master {master}: it refused this program; check that "
                "SPARK_CONF_DIR names the cluster's configuration, which contains its secret"
            ) from error
        try:
            try:
                yield session
            finally:
                session.stop()
        except (Py4JError, ConnectionError) as error:
            if not java_has_ended():
                raise
            raise UnreachableError(
                "cannot continue with Spark: its Java process ended early "
                f"({type(error).__name__}), perhaps out of memory; set its limit with --memory"
            ) from error


@contextmanager
def _tracebacks_unlogged() -> Iterator[None]:
    """Suppress the log of py4j, because a failure is reported in one sentence."""
    set_up_logging("error")
    # Filter in the handlers: records of py4j's loggers don't pass through filters of the root
    # logger.
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(_is_not_of_py4j)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def unchanged_outcome(journals: str, tables: str, remote: str | None) -> "Outcome | None":
    """Return the contents of the tables if the journals have no new records; None if unknown."""
    if remote is not None:
        return None
    try:
        from parley._pipeline.up_to_date import up_to_date_outcome
    except ImportError:
        return None  # the missing extra is reported when Spark is needed
    return up_to_date_outcome(journals, tables)


def remove_tables_at(tables: str, remote: str | None) -> None:
    """Remove tables and their checkpoint.

    Raises:
        ConfigError: they aren't on this machine.
        OSError: a file cannot be removed.
    """
    try:
        from parley._pipeline.checkpoint import remove_tables
        from parley._pipeline.tables import local_directory
    except ImportError as error:
        raise without_extra(error) from error
    directory = None if remote is not None else local_directory(tables)
    if directory is None:
        raise ConfigError(
            f"cannot remove the tables in '{tables}': --rebuild requires a directory on this "
            "machine; remove them at their storage"
        )
    remove_tables(directory)


@contextmanager
def gold_store(
    tables: str,
    master: str | None,
    remote: str | None,
    memory: str,
    stage: Callable[[str], None],
) -> Iterator["GoldStore"]:
    """Open the gold tables in a local directory, or else through Spark; raises as
    `spark_session`.
    """
    if remote is None:
        try:
            from parley._pipeline.up_to_date import gold_directory
        except ImportError as error:
            raise without_extra(error) from error
        directory = gold_directory(tables)
        if directory is not None:
            yield directory
            return
    stage("starting Spark")
    with spark_session(master, remote, memory) as spark:
        from parley._pipeline.gold.cluster import GoldCluster
        from parley._pipeline.tables import Tables

        yield GoldCluster(Tables(spark, tables))
        stage("stopping Spark")


def are_journals_small(journals: str) -> bool:
    """Whether the journals on this machine are small enough to be processed quickly."""
    lock_tables = glob(journals) if has_magic(journals) else [journals.removeprefix("file://")]
    return sum(_size(path) for place in lock_tables for path in Path(place).glob("*")) <= _SMALL


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the node has just closed and renamed this segment
        return 0


def journals_exist(journals: str, remote: str | None) -> bool:
    """Whether the directory of journals exists, as far as this machine can tell."""
    if remote is not None or has_magic(journals):
        return True
    return Path(journals.removeprefix("file://")).is_dir()


@contextmanager
def lock_tables(journals: str, tables: str, remote: str | None) -> Iterator[None]:
    """Create the directory of tables, readable only by its owner, and lock it. With `remote`, do
    nothing.

    Raises:
        ConfigError: a missing extra.
        FileError: no directory of journals, or the tables are locked. OSError.
    """
    if remote is not None:
        yield
        return
    if not journals_exist(journals, remote):
        raise FileError(f"cannot read journals in '{journals}': the directory does not exist")
    try:
        from parley._pipeline.tables import (
            local_directory,
        )  # imported here because other commands don't need the pipeline
    except ImportError as error:
        raise without_extra(error) from error
    directory = local_directory(tables)
    if directory is None:
        yield
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not inherited by child processes; the system releases it even after a crash.
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileError(
                f"cannot write the tables in '{tables}': another command is writing them; try "
                "again when it has ended"
            ) from error
        yield
    finally:
        os.close(lock)


def _check_server(remote: str) -> None:
    """Check that a Spark Connect server answers, because Spark's client would retry for ten
    minutes.

    Raises:
        ConfigError: an invalid address.
        UnreachableError: it does not answer.
    """
    parts = urlsplit(remote)
    try:
        host, port = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if parts.scheme != "sc" or not host:
        raise ConfigError(f"invalid --remote {remote!r}: expected sc://HOST:PORT")
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError as error:
        raise UnreachableError(
            f"cannot connect to the Spark server at {host}:{port}: {error}"
        ) from error


def _check_master(master: str) -> None:
    """Check that one of the addresses of a standalone master answers: Spark would try for a minute.

    Raises:
        ConfigError: an invalid address.
        UnreachableError: none of them answers.
    """
    errors = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit():
            raise ConfigError(f"invalid --master {master!r}: expected spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
        except (OSError, OverflowError) as error:
            errors.append(error)
            continue
        return
    raise UnreachableError(f"cannot connect to the Spark master at {master}: {errors[-1]}")


def without_extra(error: ImportError) -> ConfigError:
    return ConfigError(needs_extra(f"the pipeline ({error.name})", "pipeline"))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
