"""What the tables hold: gold made or left as it is, and its report. Nothing here starts Spark."""

import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.errors import NoTablesError
from pipeline.gold.refresh import newest, read_all_gold, refresh, remove_old
from pipeline.gold.store import Store
from pipeline.report.page import report


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tables hold now: `events` by status, `findings` by kind."""

    events: Counter[str]
    findings: Counter[str]


def make_gold(store: Store, check_key: bytes) -> Outcome:
    """Bring the gold tables up to date with silver."""
    now = datetime.now(UTC)
    made = refresh(store, check_key, now)
    remove_old(store, now)
    slot, _ = newest(store)
    found = None if slot is None else store.read("findings", slot)
    kinds = [] if found is None else found.column("kind").to_pylist()
    return Outcome(made.statuses, Counter(kinds))


def write_report(store: Store, path: Path) -> None:
    """Write the report of the gold tables as one HTML file, whole or not at all.

    Raises NoTablesError without tables; OSError.
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
