"""The report of gold tables as a file. Nothing here starts Spark."""

import os
import tempfile
from pathlib import Path

from pipeline.errors import NoTablesError
from pipeline.gold.refresh import read_all_gold
from pipeline.gold.store import GoldStore
from pipeline.report.page import report


def write_report(store: GoldStore, path: Path) -> None:
    """Write the report of the gold tables as one HTML file, whole or not at all.

    Raises NoTablesError without tables, or for one that is damaged; OSError.
    """
    gold = read_all_gold(store)
    if gold is None:
        raise NoTablesError("there are no tables: `parley pipeline run` makes them")
    page = report(gold)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as file:
        try:
            file.write(page)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
