"""Both ends' journals of a session side by side, and those of a tunnel's neighbouring hops.

A row is a fault only where the two journals cannot both be whole and true; what a broken connection
or a crash explains is reported as such. All functions are pure, from frames to frames, and know no
files.
"""

from pyspark.sql import DataFrame

from pipeline.reconcile.ends import FINDING_COLUMNS, covered, session_ends, wire_events
from pipeline.reconcile.events import compare_events
from pipeline.reconcile.sessions import compare_ends, missing_journals
from pipeline.reconcile.tunnels import compare_tunnels

__all__ = ["FINDING_COLUMNS", "reconcile", "session_ends", "wire_events"]


def reconcile(events: DataFrame, sessions: DataFrame, tunnels: DataFrame) -> DataFrame:
    """The findings of all sessions' and tunnels' comparison, with the columns `FINDING_COLUMNS`.

    All three are silver's. Kinds: `missing-journal`, `not-received`, `not-sent`, `differs`,
    `end-differs`, `tunnel-differs`, `tunnel-missing`; and what proves no fault: `in-flight`,
    `not-recorded`, `not-covered`.
    """
    ends = session_ends(sessions)
    times = covered(events, ends)
    return (
        compare_events(events, ends)
        .unionByName(compare_ends(ends))
        .unionByName(missing_journals(ends, times))
        .unionByName(compare_tunnels(tunnels, times))
    )
