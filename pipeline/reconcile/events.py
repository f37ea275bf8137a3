"""The events of a session as its two journals have them.

Events are matched by their digest (the 16 bytes of the chain, which stand for the event and all
before it), stream and size, not by their place: after a hole in one journal, its places are not the
other's. Where a whole block of places is alike on both sides by count and checksum, which is nearly
everywhere, its rows are not looked at again. No task gets a whole session: windows are bounded by
blocks of places.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from crypto.randomness import random_bytes
from pipeline.reconcile.ends import FINDING_COLUMNS, wire_events

BLOCK_BITS: Final = 12  # 4,096 places are compared at once by their checksum
RUN_BITS: Final = 16  # a run of findings is told in pieces of at most 65,536 places

_WHERE: Final = ("place", "segment", "offset", "time", "status")


def compare_events(events: DataFrame, ends: DataFrame) -> DataFrame:
    """Rows `not-received`, `not-sent`, `differs`, `in-flight`, `not-recorded`, `not-covered`.

    `events` are silver's, `ends` those of `session_ends`. Sessions of which only one journal
    is there are left out. `count` is the number of events; `place` is the first one's, `segment`
    and `offset` are its record's in the journal that has it.
    """
    both = ends.groupBy("session").agg(f.count_distinct("journal").alias("ends"))
    both = both.where(f.col("ends") > 1).select("session")
    rows = _comparable(events).join(both, "session", "left_semi")
    blocks = _blocks(rows)
    alike, unlike = blocks.where("alike"), blocks.where(~f.col("alike"))
    keys = ["session", "sender", "block"]
    single = _pairs(rows.join(unlike.select(*keys), keys, "left_semi"))
    matched = single.where(f.col("sent").isNotNull() & f.col("received").isNotNull())
    lonely = single.where(f.col("sent").isNull() | f.col("received").isNull())
    told = _at_places(lonely).join(_spans(alike, matched), ["session", "sender"], "left")
    return _runs(_with_ends(told, ends).withColumn("kind", _kind()))


def _comparable(events: DataFrame) -> DataFrame:
    rows = wire_events(events).where(f.col("place").isNotNull() & f.col("wire_size").isNotNull())
    # In sealing `each` what was not verified has no digest: only its place can tell it.
    has_digest = f.coalesce(f.length("digest") > 0, f.lit(False))
    nowhere = f.concat(f.lit("place "), f.col("place").cast("string")).cast("binary")
    return rows.select(
        "session",
        "sender",
        (f.col("direction") == "sent").alias("is_sent"),
        *_WHERE,
        has_digest.alias("has_digest"),
        f.shiftright("place", BLOCK_BITS).alias("block"),
        f.struct(
            f.when(has_digest, f.col("digest")).otherwise(nowhere).alias("digest"),
            "stream",
            "wire_size",
        ).alias("identity"),
    )


def _blocks(rows: DataFrame) -> DataFrame:
    """Each block of places of a direction, and whether both journals have the same in it.

    Two 64-bit checksums of hashes that begin with numbers drawn here. Sums without a secret
    could be forged: who may seal an event or not, as he likes, has a choice of two sizes for
    each of his events, and with some hundred choices any sum is a matter of linear equations.
    """
    one, other = (f.lit(random_bytes(16)) for _ in range(2))
    sides = rows.groupBy("session", "sender", "block", "is_sent").agg(
        f.count("*").alias("count"),
        f.bit_xor(f.xxhash64(one, "identity")).alias("sum"),
        f.bit_xor(f.xxhash64(other, "identity")).alias("again"),
        f.min("place").alias("first"),
        f.max("place").alias("last"),
    )
    check = f.struct("count", "sum", "again")

    def of(sent: bool, name: str) -> Column:
        side = f.col("is_sent") if sent else ~f.col("is_sent")
        value = check if name == "check" else f.col(name)
        return f.max(f.when(side, value)).alias(f"{'sent' if sent else 'received'}_{name}")

    names = [(sent, name) for sent in (True, False) for name in ("check", "first", "last")]
    blocks = sides.groupBy("session", "sender", "block").agg(*(of(*name) for name in names))
    alike = f.col("sent_check").eqNullSafe(f.col("received_check"))
    return blocks.withColumn("alike", alike).drop("sent_check", "received_check")


def _pairs(rows: DataFrame) -> DataFrame:
    """One row for each event of the blocks that are not alike: where each journal has it."""
    record = f.struct(*_WHERE, "has_digest")
    return rows.groupBy("session", "sender", "identity").agg(
        f.max(f.when(f.col("is_sent"), record)).alias("sent"),
        f.max(f.when(~f.col("is_sent"), record)).alias("received"),
    )


def _spans(alike: DataFrame, matched: DataFrame) -> DataFrame:
    """From which place to which the two journals agree, in the numbering of each."""
    names = ("sent_first", "sent_last", "received_first", "received_last")
    one = matched.select(
        "session",
        "sender",
        *(f.col(f"{name.split('_')[0]}.place").alias(name) for name in names),
    )
    spans = alike.select("session", "sender", *names).unionByName(one)
    return spans.groupBy("session", "sender").agg(
        *((f.min if name.endswith("first") else f.max)(name).alias(name) for name in names)
    )


def _at_places(lonely: DataFrame) -> DataFrame:
    """What only one journal has, by place: two different events at one place are one row.

    Unless one of them has no digest: it may be the same, and the audit has told what is wrong.
    """
    place = f.coalesce(f.col("sent.place"), f.col("received.place"))
    comparable = f.coalesce(f.col("sent.has_digest") & f.col("received.has_digest"), f.lit(True))
    return (
        lonely.withColumn("place", place)
        .groupBy("session", "sender", "place")
        .agg(f.max("sent").alias("sent"), f.max("received").alias("received"))
        .where(comparable)
    )


def _with_ends(told: DataFrame, ends: DataFrame) -> DataFrame:
    """Beside each row what the session's end says in its sender's and its receiver's journal."""
    sending = ends.select(
        "session",
        f.col("journal").alias("sender"),
        f.col("sent_place").alias("sent_end"),
    )
    receiving = ends.select(
        "session",
        f.col("peer").alias("sender"),
        f.col("journal").alias("receiver"),
        f.col("received_place").alias("received_end"),
        f.coalesce(f.col("remote") & (f.col("code") >= 0), f.lit(False)).alias("was_closed"),
    )
    keys = ["session", "sender"]
    return told.join(sending, keys, "left").join(receiving, keys, "left")


def _kind() -> Column:
    """What a row proves: see docs/pipeline.md.

    Beyond the last event that both have, an event may have been on its way when the connection
    ended, unless the receiver's own journal says at its end that it had come.
    """
    place = f.col("place")
    claimed = (f.col("received_end") >= place) | f.col("was_closed")
    after_sent = f.coalesce(place > f.col("sent_last"), f.lit(True))
    after_received = f.coalesce(place > f.col("received_last"), f.lit(True))
    return (
        f.when(f.col("sent").isNotNull() & f.col("received").isNotNull(), "differs")
        .when(f.col("received").isNull() & after_sent & claimed, "not-received")
        .when(f.col("received").isNull() & after_sent, "in-flight")
        .when(f.col("received").isNull() & (place < f.col("sent_first")), "not-covered")
        .when(f.col("received").isNull(), "not-received")
        .when(after_received & f.col("sent_end").isNull(), "not-recorded")
        .when(~after_received & (place < f.col("received_first")), "not-covered")
        .otherwise("not-sent")
    )


def _runs(told: DataFrame) -> DataFrame:
    """Rows of one kind at places that follow each other become one finding."""
    keys = ["session", "sender", "receiver", "kind"]
    piece = f.shiftright("place", RUN_BITS)
    order = Window.partitionBy(*keys, "piece").orderBy("place")
    runs = (
        told.withColumn("piece", piece)
        .withColumn("run", f.col("place") - f.row_number().over(order))
        .groupBy(*keys, "piece", "run")
        .agg(
            f.count("*").alias("count"),
            f.min("place").alias("place"),
            f.max("place").alias("last"),
            f.min_by("sent", "place").alias("sent"),
            f.min_by("received", "place").alias("received"),
            f.max("sent_last").alias("sent_last"),
        )
    )
    lacks_sent = f.col("kind").isin("not-sent", "not-recorded") | (
        (f.col("kind") == "not-covered") & f.col("sent").isNull()
    )
    record = f.coalesce("sent", "received")
    by_sender = lacks_sent | (f.col("kind") == "differs")
    return (
        runs.withColumn("record", record)
        .select(
            "kind",
            f.when(by_sender, f.col("sender")).otherwise(f.col("receiver")).alias("journal"),
            "session",
            f.when(by_sender, "sent").otherwise("received").alias("direction"),
            "place",
            f.col("record.time").alias("time"),
            f.col("record.segment").alias("segment"),
            f.col("record.offset").alias("offset"),
            "count",
            _evidence().alias("evidence"),
        )
        .select(*FINDING_COLUMNS)
    )


def _evidence() -> Column:
    """What stands where, as a sentence; the first event's record is in columns of its own."""
    one, last = f.col("place"), f.col("last")
    places = f.when(one == last, f.format_string("place %d", one)).otherwise(
        f.format_string("places %d to %d", one, last)
    )

    def record(side: str) -> Column:
        of = (f.col(f"{side}.{name}") for name in ("segment", "offset", "status"))
        return f.format_string("%s at %d (%s)", *of)

    def says(*parts: str | Column) -> Column:
        return f.concat(*(f.lit(part) if isinstance(part, str) else part for part in parts))

    kind = f.col("kind")
    status = f.col("record.status")
    goes_on = f.when(one < f.col("sent_last"), "goes on behind them").otherwise(
        "says at its end that they had come"
    )
    return (
        f.when(
            kind == "differs",
            says(places, ": sent was ", record("sent"), ", received ", record("received")),
        )
        .when(
            kind == "not-received",
            says(places, " sent (", status, "), not in the receiver's journal, which ", goes_on),
        )
        .when(
            kind == "in-flight",
            says(places, " sent (", status, "), after all that the receiver's journal has"),
        )
        .when(
            kind == "not-sent",
            says(
                places,
                " received (",
                status,
                "), not in the sender's journal, which goes on behind them or was ended",
            ),
        )
        .when(
            kind == "not-recorded",
            says(places, " received (", status, "), after all that the sender's journal has"),
        )
        .otherwise(says(places, ", from before the first event that both journals have"))
    )
