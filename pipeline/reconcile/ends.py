"""What each journal says of each of its sessions: one row for each journal and session.

Nothing here compares two ends.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

FINDING_COLUMNS: Final = (
    "kind",
    "journal",
    "session",
    "direction",
    "place",
    "time",
    "segment",
    "offset",
    "count",
    "evidence",
)


def known_events(events: DataFrame) -> DataFrame:
    """All rows but copies of an event that a journal has already."""
    return events.where(f.col("status") != "duplicate")


def wire_events(events: DataFrame) -> DataFrame:
    """One row for each event of a journal: coalesced notes once, copies of an event not at all."""
    return known_events(events).where(f.col("item") == 0)


def session_ends(sessions: DataFrame) -> DataFrame:
    """One row for each journal and session.

    Columns: journal, session, peer, initiator, local_role, remote_role, address, suite,
    first_seen and last_seen (of all its rows), started, ended (null without an end), end_segment,
    end_offset, code, text, remote, received_place, sent_place (of the end; null
    without one), key_updates, rekeys, resumptions.
    """
    end, update = (f.col("what") == what for what in ("end", "key-update"))

    def known(name: str) -> Column:
        return f.max(name).alias(name)

    def at_end(name: str, alias: str) -> Column:
        return f.max(f.when(end, f.col(name))).alias(alias)

    return sessions.groupBy("journal", "session").agg(
        f.max("remote_node").alias("peer"),
        *map(known, ("initiator", "local_role", "remote_role", "address", "suite")),
        f.min("time").alias("first_seen"),
        f.max("time").alias("last_seen"),
        f.min("started").alias("started"),
        at_end("time", "ended"),
        at_end("segment", "end_segment"),
        at_end("offset", "end_offset"),
        *(
            at_end(name, name)
            for name in ("code", "text", "remote", "received_place", "sent_place")
        ),
        f.count_distinct(f.when(update, f.struct("direction", "epoch"))).alias("key_updates"),
        f.coalesce(f.max(f.when(update, f.col("generation"))), f.lit(0)).alias("rekeys"),
        f.coalesce(f.max("resumption"), f.lit(0)).alias("resumptions"),
    )


def covered(events: DataFrame, ends: DataFrame) -> DataFrame:
    """From when to when each journal has records of sessions: journal, first, last."""
    times = events.select("journal", f.col("time").alias("first"), f.col("time").alias("last"))
    seen = ends.select("journal", "first_seen", "last_seen").toDF("journal", "first", "last")
    return (
        times.unionByName(seen)
        .groupBy("journal")
        .agg(f.min("first").alias("first"), f.max("last").alias("last"))
    )
