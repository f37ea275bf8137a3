"""`parley pipeline report`: the tables as one page for a browser, which opens offline.

One rule: the file is written whole or not at all.
"""

from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import Json
from node.cli.output import Output
from node.cli.pipeline.session import Master, Memory, Remote, spark_session
from node.cli.pipeline.session import Tables as TablesDirectory
from node.errors import FileError


def report(
    tables: TablesDirectory,
    html: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")],
    master: Master = None,
    remote: Remote = None,
    memory: Memory = "2g",
    as_json: Json = False,
) -> None:
    """Write the report of the tables as one HTML page."""
    out = Output(as_json)
    if not html.parent.is_dir():
        raise FileError(f"there is no directory {html.parent}")
    with spark_session(master, remote, memory) as spark:
        from pipeline.jobs import write_report

        try:
            write_report(spark, tables, html)
        except OSError as error:
            raise FileError(f"{html} cannot be written: {error.strerror}") from error
    out.say(f"wrote {html}")
    out.done(html=str(html), size=html.stat().st_size)
