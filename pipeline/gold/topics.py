"""Topics: who publishes, how many subscribe, how many notes, and which subscribers were too slow.

An event counts once, whichever of the two journals has it. The table is empty without an auditor's
key.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import LONG, TEXT, TIME, grouped, only, shaped
from parley._pipeline.summary.kinds import Summary

_COUNTS: Final = ("subscriptions", "subscribers", "notes", "payload_bytes", "slow_resets")
TOPICS: Final = pa.schema(
    [
        ("topic", TEXT),
        ("publisher", TEXT),
        *((name, LONG) for name in _COUNTS),
        ("first", TIME),
        ("last", TIME),
    ]
)
_KEY: Final = ["topic", "publisher"]


def topics(summary: Summary) -> pa.Table:
    """Columns: topic, publisher, subscriptions, subscribers, notes, payload_bytes,
    slow_resets, first, last.

    A subscription is one accepted Subscribe, a subscriber one node. `slow_resets` counts the
    subscriptions that were ended with Reset `slow-consumer`.
    """
    counts = _subscriptions(summary["streams"])
    notes = _notes(summary["notes"])
    both = counts.join(notes, _KEY, join_type="full outer")
    for name in _COUNTS:
        at = both.schema.get_field_index(name)
        both = both.set_column(at, name, both.column(name).fill_null(0))
    opened, began, ended = (
        both.column(name).cast(LONG) for name in ("opened", "first_note", "last_note")
    )
    first = pc.min_element_wise(opened, began)
    last = pc.max_element_wise(opened, ended)
    both = both.append_column("first", first).append_column("last", last)
    return shaped(both.filter(both.column("topic").is_valid()), TOPICS)


def _subscriptions(streams: pa.Table) -> pa.Table:
    """The streams that a Result gave to a subscriber, with the topic that their Open names."""
    stream = ["session", "stream"]
    granted = only(streams, "what", "granted").select([*stream, "publisher"])
    slow = grouped(only(streams, "what", "slow"), stream, count="slow")
    opened = only(streams, "what", "open").drop_columns(["what"])
    kept = opened.join(granted, [*stream, "publisher"], join_type="left semi")
    kept = kept.join(slow, stream, join_type="left outer")
    groups = kept.group_by(_KEY).aggregate(
        [
            ("stream", "count"),
            ("subscriber", "count_distinct"),
            ("slow", "count"),
            ("first", "min"),
        ]
    )
    names = ["stream_count", "subscriber_count_distinct", "slow_count", "first_min"]
    named = [*_KEY, "subscriptions", "subscribers", "slow_resets", "opened"]
    return groups.select([*_KEY, *names]).rename_columns(named)


def _notes(notes: pa.Table) -> pa.Table:
    """How many notes of each topic each publisher sent; the fuller of two journals counts."""
    sums = ["notes", "payload_bytes"]
    once = grouped(notes, ["session", *_KEY], most=[*sums, "last"], least=["first"])
    groups = grouped(once, _KEY, total=sums, least=["first"], most=["last"])
    return groups.rename_columns([*_KEY, *sums, "first_note", "last_note"])
