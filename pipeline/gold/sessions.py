"""Sessions, one row each, with what both ends say of it.

What the ends say is put side by side and not judged, which is left to `pipeline.reconcile`. It
works without an auditor's key.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipeline.reconcile.ends import session_ends, wire_events

_OF_EACH_END: Final = ("code", "text", "remote", "sent_place", "received_place")
_TOTALS: Final = ("events", "wire_bytes")


def sessions(events: DataFrame, silver_sessions: DataFrame) -> DataFrame:
    """Columns: session, initiator, responder, initiator_role, responder_role, address, suite,
    journals, started, ended, duration_us, key_updates, rekeys, resumptions, events, wire_bytes,
    and for each end initiator_* and responder_*: code, text, remote, sent_place, received_place.

    `events` and `wire_bytes` count each event once: as its sender's or its receiver's journal
    has it, whichever has more.
    """
    dialled = f.col("initiator")

    def either(dials: str, answers: str) -> Column:
        return f.max(f.when(dialled, f.col(dials)).otherwise(f.col(answers)))

    both = (
        session_ends(silver_sessions)
        .groupBy("session")
        .agg(
            either("journal", "peer").alias("initiator"),
            either("peer", "journal").alias("responder"),
            either("local_role", "remote_role").alias("initiator_role"),
            either("remote_role", "local_role").alias("responder_role"),
            f.max(f.when(dialled, f.col("address"))).alias("address"),
            f.max("suite").alias("suite"),
            f.count("*").cast("int").alias("journals"),
            f.min("started").alias("started"),
            f.max("ended").alias("ended"),
            # Of one journal's two times, never of two clocks.
            f.max(f.unix_micros("ended") - f.unix_micros("started")).alias("duration_us"),
            f.max("key_updates").alias("key_updates"),
            f.max("rekeys").alias("rekeys"),
            f.max("resumptions").alias("resumptions"),
            *(
                f.max(f.when(side, f.col(name))).alias(f"{end}_{name}")
                for end, side in (("initiator", dialled), ("responder", ~dialled))
                for name in _OF_EACH_END
            ),
        )
    )
    sums = directions(events).groupBy("session").agg(*(f.sum(name).alias(name) for name in _TOTALS))
    columns = [name for name in both.columns if not name.endswith(_OF_EACH_END)]
    ends = [name for name in both.columns if name.endswith(_OF_EACH_END)]
    return both.join(sums, "session", "left").select(
        *columns, *(f.coalesce(name, f.lit(0)).alias(name) for name in _TOTALS), *ends
    )


def directions(events: DataFrame) -> DataFrame:
    """One row for each direction of each session: from whom to whom, how much, when.

    Of the two journals that may have it, the counts are those of the one that has more.
    """
    kept = (
        wire_events(events)
        .where(f.col("session").isNotNull())
        .groupBy("session", "sender", "receiver", "direction")
        .agg(
            f.count("*").alias("events"),
            f.sum(f.col("wire_size").cast("long")).alias("wire_bytes"),
            f.min("time").alias("first"),
            f.max("time").alias("last"),
        )
    )
    return kept.groupBy("session", "sender", "receiver").agg(
        *(f.max(name).alias(name) for name in _TOTALS),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.count("*").cast("int").alias("journals"),
    )
