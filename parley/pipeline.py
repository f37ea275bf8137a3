"""The data pipeline over journals; it needs the extra `pipeline` (docs/pipeline.md)."""

from pipeline.gold.refresh import read_gold
from pipeline.jobs import Outcome, run
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
