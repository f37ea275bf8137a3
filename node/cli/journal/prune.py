"""`parley journal prune`: delete the oldest segments to free disk space.

It prints each deleted file; with --dry-run, each file that it would delete.
"""

import time
from pathlib import Path
from typing import Final

from parley._node.cli.output import Output, pluralise
from parley._node.cli.param_types import parse_duration, parse_size
from parley._node.errors import ConfigError
from parley._node.journal.prune import prune as prune_segments

_LIMITS: Final = "cannot prune: no limit is given; give --older-than 30d or --max-size 10GB"


def prune(
    directory: Path,
    older_than: str | None,
    max_size: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    if older_than is None and max_size is None:
        raise ConfigError(_LIMITS)
    out = Output(as_json)
    removed = prune_segments(
        directory,
        now=time.time_ns(),
        older_than=None if older_than is None else parse_duration(older_than, "--older-than"),
        max_size=None if max_size is None else parse_size(max_size, "--max-size"),
        dry_run=dry_run,
    )
    for each in removed:
        out.event("removed", file=each.path.name, node_id=each.name.node, size=each.size)
        out.print(f"{each.path.name}  {each.size:,} bytes")
    size = sum(each.size for each in removed)
    verb = "would be removed" if dry_run else "removed"
    out.print(f"{pluralise(len(removed), 'file')}, {pluralise(size, 'byte')} {verb}")
    out.done(files=len(removed), size=size, dry_run=dry_run)
