"""The data pipeline that analyses journals; requires the `pipeline` extra (docs/pipeline.md)."""

from parley._node.logs import extra_required

with extra_required("parley.pipeline", "pipeline"):
    from parley._pipeline.gold.cluster import read_gold
    from parley._pipeline.gold.refresh import Outcome
    from parley._pipeline.jobs import run
    from parley._pipeline.silver import events, findings, sessions, statements, tunnels
    from parley._pipeline.spark import open_session
    from parley._pipeline.spark_source import JournalSource
    from parley._pipeline.tables import Tables

__all__ = [
    "JournalSource",
    "Outcome",
    "Tables",
    "events",
    "findings",
    "open_session",
    "read_gold",
    "run",
    "sessions",
    "statements",
    "tunnels",
]
