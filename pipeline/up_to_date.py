"""What a run finds that has nothing new to take in, and where gold is: without Spark, which takes
longer to start than all of this.
"""

from parley._node.journal.segments import RANGE_SIZE
from parley._pipeline.checkpoint import check_directory, missing_silver
from parley._pipeline.errors import DamagedTablesError, PipelineError
from parley._pipeline.gold.refresh import Outcome, make_gold
from parley._pipeline.gold.store import GoldDirectory
from parley._pipeline.read_planner import Budget, Listing, Progress, read_on
from parley._pipeline.tables import local_check_key, local_directory


def up_to_date_outcome(journals: str, tables: str) -> Outcome | None:
    """What the tables hold, if all that the journals have is in them; else None.

    Gold is brought up to date if a run was killed before it did that. None also if silver is to be
    made again, which takes Spark. Raises DamagedTablesError: the tables cannot be continued.
    """
    root = local_directory(tables)
    checkpoint = None if root is None else check_directory(root)
    if root is None or checkpoint is None or checkpoint.done < checkpoint.planned:
        return None
    if missing_silver(root, checkpoint.done):
        return None
    before, after = Progress(checkpoint.offset), Progress(checkpoint.offset)
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
    try:
        return make_gold(GoldDirectory(root), local_check_key(root))
    except DamagedTablesError:
        return None


def gold_directory(tables: str) -> GoldDirectory | None:
    """Where gold is, if it is in a directory of this machine."""
    root = local_directory(tables)
    return GoldDirectory(root) if root is not None and (root / "gold").is_dir() else None
