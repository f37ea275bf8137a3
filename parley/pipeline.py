"""The data pipeline over journals; it needs the extra `pipeline` (docs/pipeline.md)."""

from pipeline.gold.cluster import read_gold
from pipeline.gold.outcome import Outcome
from pipeline.jobs import run
from pipeline.silver import events, findings, sessions, tunnels
from pipeline.source import JournalSource
from pipeline.spark import open_session
from pipeline.tables import Tables

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
    "tunnels",
]
