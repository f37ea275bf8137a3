"""Both ends' journals of a session side by side: what one end has and the other lacks.

A row is a fault only where the two journals cannot both be whole and true; what a broken connection
or a crash explains is reported as such. All functions are pure, from frames to frames, and know no
files.
"""

from pyspark.sql import DataFrame

from pipeline.reconcile.ends import FINDING_COLUMNS, session_ends, wire_events
from pipeline.reconcile.events import compare_events
from pipeline.reconcile.sessions import compare_ends, missing_journals

__all__ = ["FINDING_COLUMNS", "reconcile", "session_ends", "wire_events"]


def reconcile(events: DataFrame, sessions: DataFrame) -> DataFrame:
    """The findings of all sessions' comparison, with the columns `FINDING_COLUMNS`.

    `events` and `sessions` are silver's. Kinds: `missing-journal`, `not-received`, `not-sent`,
    `differs`, `end-differs`; and what proves no fault: `in-flight`, `not-recorded`,
    `not-covered`.
    """
    ends = session_ends(sessions)
    return (
        compare_events(events, ends)
        .unionByName(compare_ends(ends))
        .unionByName(missing_journals(events, ends))
    )
