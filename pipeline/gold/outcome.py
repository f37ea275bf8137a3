"""What the tables hold: gold made, or left as it is. Nothing here starts Spark."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from parley._pipeline.gold.refresh import newest, read_table, refresh, remove_old
from parley._pipeline.gold.store import GoldStore


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tables hold now: `events` by status, `findings` by kind."""

    events: Counter[str]
    findings: Counter[str]


def make_gold(store: GoldStore, check_key: bytes) -> Outcome:
    """Bring the gold tables up to date with silver."""
    now = datetime.now(UTC)
    made = refresh(store, check_key, now)
    remove_old(store, now)
    slot, _ = newest(store)
    found = None if slot is None else read_table(store, "findings", slot)
    kinds = [] if found is None else found.column("kind").to_pylist()
    return Outcome(made.statuses, Counter(kinds))
