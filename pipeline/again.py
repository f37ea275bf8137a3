"""What a run finds that has nothing new to take in, and where gold is: without Spark, which takes
longer to start than all of this.
"""

import json
from pathlib import Path

from node.journal.segments import RANGE_SIZE
from pipeline.errors import PipelineError
from pipeline.gold.outcome import Outcome, make_gold
from pipeline.gold.store import GoldDirectory
from pipeline.listing import Budget, Listing, read_on
from pipeline.progress import Progress
from pipeline.secret import local_check_key
from pipeline.tables import CHECKPOINT, local_directory


def unchanged(journals: str, tables: str) -> Outcome | None:
    """What the tables hold, if all that the journals have is in them; else None.

    Gold is brought up to date if a run was killed before it did that.
    """
    root = local_directory(tables)
    before = None if root is None else _read_progress(root / CHECKPOINT)
    if root is None or before is None:
        return None
    after = Progress(before.as_offset())
    try:
        listing = Listing.of(journals.removeprefix("file://"))
    except PipelineError:
        return None
    for path in listing.foreign:
        after.add_foreign(path)
    for file in listing.segments:
        read_on(file, after, Budget(), RANGE_SIZE)
    if after.as_offset() != before.as_offset():
        return None
    return make_gold(GoldDirectory(root), local_check_key(root))


def gold_directory(tables: str) -> GoldDirectory | None:
    """Where gold is, if it is in a directory of this machine."""
    root = local_directory(tables)
    return GoldDirectory(root) if root is not None and (root / "gold").is_dir() else None


def _read_progress(checkpoint: Path) -> Progress | None:
    """How far the stream is, as Spark keeps it; None without one that is done.

    Of each batch there is a file in `offsets`, and when it is done one in `commits`. A file has
    a version, a line of Spark's own, and a line for each source, of which there is one.
    """
    planned, done = (_last_number(checkpoint / name) for name in ("offsets", "commits"))
    if planned is None or planned != done:
        return None
    lines = (checkpoint / "offsets" / str(planned)).read_text(encoding="utf-8").splitlines()
    if len(lines) != 3 or lines[0] != "v1":
        return None
    return Progress(json.loads(lines[2]))


def _last_number(directory: Path) -> int | None:
    if not directory.is_dir():
        return None
    return max(
        (int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=None
    )
