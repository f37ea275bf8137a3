"""`parley journal export`: write the rows of an audit to files: events, sessions, tunnels,
statements and findings.

Each row has its status. Existing files are not replaced, and a file gets its final name when it is
complete.
"""

from pathlib import Path

from parley._node.cli.journal.keys import (
    read_auditor_keys,
)
from parley._node.cli.journal.segments import ProgressBar, audit_segments, find_segments
from parley._node.cli.output import Output
from parley._node.errors import ConfigError
from parley._node.logs import needs_extra


def export(
    directory: Path,
    out_directory: Path,
    to: str,
    auditor_key: list[Path] | None,
    passphrase_file: Path | None,
    node: str | None,
    payloads: bool,
    as_json: bool,
) -> None:
    try:
        from parley._node.cli.journal.parquet import ParquetFiles
    except ImportError as error:
        raise ConfigError(needs_extra(f"invalid --to {to!r}", "pipeline")) from error
    out = Output(as_json)
    auditors = read_auditor_keys(auditor_key, passphrase_file)
    journals = find_segments(directory, node)
    bar = ProgressBar(sum(each.size for segments in journals.values() for each in segments))
    with bar.shown(), ParquetFiles(out_directory) as files:
        for piece in audit_segments(journals, auditors, bar, payloads=payloads):
            files.add(piece)
    for path, rows in files.written.items():
        out.print(f"{path}  {rows:,} rows")
    out.done(files={str(path): rows for path, rows in files.written.items()})
