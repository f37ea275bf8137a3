"""`parley journal export`: what the audit says (events, sessions, tunnels, findings) as files.

Everything is verified before it is written, and each row has its status. Existing files are left
alone, and a file has its name only when it is whole.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from parley._node.cli.journal.arguments import (
    AuditorKeys,
    Directory,
    KeyPassphrase,
    NodeOption,
    read_auditor_keys,
)
from parley._node.cli.journal.segments import Bar, audited, find_segments
from parley._node.cli.options import Json
from parley._node.cli.output import Output
from parley._node.errors import ConfigError
from parley._node.logs import needs_extra


class ExportFormat(StrEnum):
    """What an export is written as."""

    PARQUET = "parquet"


def export(
    directory: Directory,
    out_directory: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the files go; made if need be.")
    ] = Path("journal-rows"),
    to: Annotated[
        ExportFormat, typer.Option("--to", help="The form of the files.")
    ] = ExportFormat.PARQUET,
    auditor_key: AuditorKeys = None,
    passphrase_file: KeyPassphrase = None,
    node: NodeOption = None,
    payloads: Annotated[
        bool, typer.Option("--payloads/--no-payloads", help="Whether they are in the rows.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Write the journals in a directory, verified: events, sessions, tunnels and findings."""
    try:
        from parley._node.cli.journal.parquet import ParquetFiles
    except ImportError as error:
        raise ConfigError(needs_extra(f"--to {to}", "pipeline")) from error
    out = Output(as_json)
    auditors = read_auditor_keys(auditor_key, passphrase_file)
    journals = find_segments(directory, node)
    bar = Bar(sum(each.size for segments in journals.values() for each in segments))
    with bar.shown(), ParquetFiles(out_directory) as files:
        for piece in audited(journals, auditors, bar, payloads=payloads):
            files.add(piece)
    for path, rows in files.written.items():
        out.say(f"{path}  {rows:,} rows")
    out.done(files={str(path): rows for path, rows in files.written.items()})
