"""A quick check, without starting Spark, of whether tables already include all journals."""

from parley._node.journal.segments import RANGE_SIZE
from parley._pipeline.checkpoint import check_directory, missing_silver
from parley._pipeline.errors import DamagedTablesError, PipelineError
from parley._pipeline.gold.refresh import Outcome, make_gold
from parley._pipeline.gold.store import GoldDirectory
from parley._pipeline.read_planner import Budget, Listing, Progress, read_on
from parley._pipeline.tables import local_check_key, local_directory


def up_to_date_outcome(journals: str, tables: str) -> Outcome | None:
    """Return the tables' totals if they include everything in the journals; otherwise return None.

    If a run was killed before it refreshed gold, gold is refreshed here. None is also returned if
    silver must be remade, which requires Spark.

    Raises:
        DamagedTablesError: The tables cannot be continued.
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
    """Return the directory of gold if it is on a local file system."""
    root = local_directory(tables)
    return GoldDirectory(root) if root is not None and (root / "gold").is_dir() else None
