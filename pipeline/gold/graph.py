"""Who talks to whom: one row for each node and each node that it sent something.

One rule: each event counts once, whichever of the two journals has it. Works without an
auditor's key.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.gold.sessions import directions


def graph(events: DataFrame) -> DataFrame:
    """Columns: sender, receiver, sessions, events, wire_bytes, first, last."""
    return (
        directions(events)
        .groupBy("sender", "receiver")
        .agg(
            f.count("*").alias("sessions"),
            f.sum("events").alias("events"),
            f.sum("wire_bytes").alias("wire_bytes"),
            f.min("first").alias("first"),
            f.max("last").alias("last"),
        )
    )
