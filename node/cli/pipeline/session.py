"""A session of Spark for a command, and its places: options, and what is missing said clearly.

One rule: Spark is imported only when one of these commands runs; without the extra
`parley-node[pipeline]` that is one sentence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli.exits import FileProblem
from node.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where Spark runs, as spark-submit has it. Default: local[*], here."
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(metavar="sc://HOST:PORT", help="A Spark Connect server, in place of --master."),
]
Memory = Annotated[
    str, typer.Option(metavar="SIZE", help="Of the driver's Java, if it is started here.")
]
Tables = Annotated[
    str, typer.Option(metavar="DIR", help="Where the tables are; all of Spark's workers see it.")
]
Journals = Annotated[
    str,
    typer.Option(metavar="DIR", help="Where the journals are: a directory, or a pattern of some."),
]
NoPayloads = Annotated[bool, typer.Option("--no-payloads", help="Keep no payloads in the tables.")]


@contextmanager
def spark_session(master: str | None, remote: str | None, memory: str) -> Iterator["SparkSession"]:
    """A session that ends with the command.

    Raises ConfigError without the extra or for options that do not go together,
    NoJavaError, UnreachableError for a server that does not answer.
    """
    if master is not None and remote is not None:
        raise ConfigError("--master or --remote, not both")
    try:
        from pyspark.errors import PySparkException

        from pipeline.spark import open_session
    except ImportError as error:
        raise ConfigError(
            f"the pipeline needs {error.name}: pip install 'parley-node[pipeline]'"
        ) from error
    try:
        session = open_session(master=master, remote=remote, memory=memory)
    except PySparkException as error:
        raise UnreachableError(f"no session of Spark: {_first_line(error)}") from error
    try:
        yield session
    finally:
        session.stop()


def prepare_places(journals: str, tables: str, remote: str | None) -> None:
    """Make the directory of tables, for its owner alone: payloads are in them.

    Raises FileProblem if there is no directory of journals; OSError. What a server of
    Spark's sees is not looked at.
    """
    if remote is not None:
        return
    if not has_magic(journals) and not Path(journals.removeprefix("file://")).is_dir():
        raise FileProblem(f"there is no directory {journals}")
    if "://" not in tables:
        Path(tables).mkdir(mode=0o700, parents=True, exist_ok=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
