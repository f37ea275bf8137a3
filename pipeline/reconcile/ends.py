"""What each journal says of each of its sessions: one object for each journal and session.

Nothing here compares two ends.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

Row = Mapping[str, Any]
T = TypeVar("T", int, str, bool)


class Found(NamedTuple):
    """A finding; `time` is in microseconds since the epoch."""

    kind: str
    journal: str | None
    session: str | None = None
    direction: str | None = None
    place: int | None = None
    time: int | None = None
    segment: str | None = None
    offset: int | None = None
    events: int = 1  # how many it concerns, or tunnels
    evidence: str | None = None


_ALIKE: Final = ("initiator", "local_role", "remote_role", "address", "suite")
_OF_END: Final = ("code", "text", "remote", "received_place", "sent_place")


@dataclass(slots=True)
class End:
    """A session as one journal has it. Times are in microseconds since the epoch; what is of its
    end is None without one. `first_seen` and `last_seen` are of all that the journal says."""

    journal: str
    session: str
    peer: str | None = None
    initiator: bool | None = None
    local_role: str | None = None
    remote_role: str | None = None
    address: str | None = None
    suite: str | None = None
    first_seen: int | None = None
    last_seen: int | None = None
    started: int | None = None
    ended: int | None = None
    end_segment: str | None = None
    end_offset: int | None = None
    code: int | None = None
    text: str | None = None
    remote: bool | None = None
    received_place: int | None = None
    sent_place: int | None = None
    updates: set[tuple[str | None, int | None]] = field(default_factory=set)
    rekeys: int = 0
    resumptions: int = 0

    @property
    def was_closed(self) -> bool:
        """Whether it ended with a Close of the other side."""
        return bool(self.remote) and self.code is not None and self.code >= 0

    def add(self, row: Row) -> None:
        """One of silver's rows of this session."""
        time, started = _micros(row["time_ns"]), _micros(row.get("started_ns"))
        self.peer = most(self.peer, row.get("remote_node"))
        for name in _ALIKE:
            setattr(self, name, most(getattr(self, name), row.get(name)))
        self.first_seen, self.last_seen = least(self.first_seen, time), most(self.last_seen, time)
        self.started = least(self.started, started)
        if row["what"] == "end":
            self.ended = most(self.ended, time)
            self.end_segment = most(self.end_segment, row["segment"])
            self.end_offset = most(self.end_offset, row["offset"])
            for name in _OF_END:
                setattr(self, name, most(getattr(self, name), row.get(name)))
        elif row["what"] == "key-update":
            self.updates.add((row.get("direction"), row.get("epoch")))
            self.rekeys = max(self.rekeys, row.get("generation") or 0)
        self.resumptions = max(self.resumptions, row.get("resumption") or 0)


def session_ends(rows: Iterable[Row]) -> list[End]:
    """One for each journal and session of silver's rows of sessions."""
    ends: dict[tuple[str, str], End] = {}
    for row in rows:
        key = row["journal"], row["session"]
        if key not in ends:
            ends[key] = End(*key)
        ends[key].add(row)
    return list(ends.values())


def by_session(ends: Iterable[End]) -> dict[str, list[End]]:
    """The ends of each session."""
    found: defaultdict[str, list[End]] = defaultdict(list)
    for end in ends:
        found[end.session].append(end)
    return found


def covered(statuses: pa.Table, ends: Iterable[End]) -> dict[str, tuple[int, int]]:
    """From when to when each journal has records of sessions, in microseconds."""
    times: dict[str, tuple[int, int]] = {}

    def add(journal: str, first: int | None, last: int | None) -> None:
        if first is not None and last is not None:
            before = times.get(journal, (first, last))
            times[journal] = min(before[0], first), max(before[1], last)

    began, ended = (
        statuses.column(name).cast(pa.int64()).to_pylist() for name in ("began", "ended")
    )
    for one in zip(statuses.column("journal").to_pylist(), began, ended, strict=True):
        add(*one)
    for end in ends:
        add(end.journal, end.first_seen, end.last_seen)
    return times


def most(one: T | None, other: T | None) -> T | None:
    """The greater of two values, of which either may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def least(one: T | None, other: T | None) -> T | None:
    """The smaller of two values, of which either may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _micros(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // 1000
