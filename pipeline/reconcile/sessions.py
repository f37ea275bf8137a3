"""The ends of sessions, one for each journal and session, and their comparison.

A Close that may have been lost in flight proves nothing. A missing journal is reported without a
reason. Events are compared elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    events: int = 1  # the number of affected events, sessions or tunnels
    evidence: str | None = None


_ALIKE: Final = ("initiator", "local_role", "remote_role", "address", "suite")
_OF_END: Final = ("code", "text", "remote", "received_place", "sent_place")


@dataclass(slots=True)
class End:
    """A session according to one journal, with times in microseconds since the epoch.

    Fields about the session's end are None if the journal has no end. `first_seen` and `last_seen`
    are the times of its first and last records.
    """

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
        """Return whether the other side's Close ended the session."""
        return bool(self.remote) and self.code is not None and self.code >= 0

    def add(self, row: Row) -> None:
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
    """Return one end for each journal and session, from silver's rows of sessions."""
    ends: dict[tuple[str, str], End] = {}
    for row in rows:
        key = row["journal"], row["session"]
        if key not in ends:
            ends[key] = End(*key)
        ends[key].add(row)
    return list(ends.values())


def by_session(ends: Iterable[End]) -> dict[str, list[End]]:
    found: defaultdict[str, list[End]] = defaultdict(list)
    for end in ends:
        found[end.session].append(end)
    return found


def covered(statuses: pa.Table, ends: Iterable[End]) -> dict[str, tuple[int, int]]:
    """Return the times of each journal's first and last session records, in microseconds."""
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
    """Return the greater of two values, either of which may be None."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def least(one: T | None, other: T | None) -> T | None:
    """Return the smaller of two values, either of which may be None."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _micros(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // 1000


def compare_ends(ends: Iterable[End]) -> Iterator[Found]:
    """Yield a finding `end-differs` for each two session ends that cannot both be true.

    They contradict each other if one side received a Close that the other did not send with that
    code, or if one side received more than the other sent.
    """
    for session, both in by_session(end for end in ends if end.ended is not None).items():
        for one in both:
            for other in both:
                if one.initiator is not True or other.initiator is not False:
                    continue
                evidence = next(_contradictions(one, other), None)
                if evidence is not None:
                    yield Found(
                        "end-differs",
                        one.journal,
                        session,
                        time=one.ended,
                        segment=one.end_segment,
                        offset=one.end_offset,
                        evidence=evidence,
                    )


def _contradictions(initiator: End, responder: End) -> Iterator[str]:
    sides = (
        (initiator, responder, "initiator", "responder"),
        (responder, initiator, "responder", "initiator"),
    )
    for a, b, one, other in sides:
        if a.was_closed and b.was_closed:
            yield "each journal records that the other side closed the session"
        if a.was_closed and None not in (a.code, b.code) and a.code != b.code:
            yield f"the {one} received Close {a.code}, the {other} ended with {b.code}"
        if a.received_place is None or b.sent_place is None:
            continue
        if a.received_place > b.sent_place:
            yield (
                f"the {one} received up to place {a.received_place}, the {other} sent up to "
                f"{b.sent_place}"
            )
        if a.was_closed and a.received_place < b.sent_place:
            yield (
                f"the {one} received the Close at place {a.received_place}, the {other} sent up to "
                f"{b.sent_place}"
            )


def missing_journals(
    ends: Sequence[End], covered: Mapping[str, tuple[int, int]]
) -> Iterator[Found]:
    """Yield findings `missing-journal` and `not-covered`; `journal` is the node without a journal.

    A node without any journal gets one finding whose `count` is its number of sessions. A node
    whose journal has records from before and after a session, but not the session, gets one finding
    for each such session. Sessions that begin before the first record of a node's journal, or end
    after its last, are combined in one `not-covered`.
    """
    kept = {(end.session, end.journal) for end in ends}
    lost: defaultdict[tuple[str, str, str | None], list[End]] = defaultdict(list)
    for end in ends:
        if end.peer is None or (end.session, end.peer) in kept:
            continue
        times = covered.get(end.peer)
        if times is None:
            lost[end.peer, "none", None].append(end)
        elif _is_inside(end, times):
            lost[end.peer, "inside", end.session].append(end)
        else:
            lost[end.peer, "outside", None].append(end)
    for (node, within, session), told in lost.items():
        time = None
        for end in told:
            time = least(time, end.started)
        yield Found(
            "not-covered" if within == "outside" else "missing-journal",
            node,
            session,
            time=time,
            events=len(told),
            evidence=_absence(within, told),
        )


def _is_inside(end: End, times: tuple[int, int]) -> bool:
    if end.started is None or end.last_seen is None:
        return False
    return times[0] <= end.started and end.last_seen <= times[1]


def _absence(within: str, told: Sequence[End]) -> str:
    """Describe what other journals recorded about a node."""
    others = {end.journal for end in told}
    if within == "inside":
        return (
            f"{min(others)} has this session; this journal has records from before and after the "
            "session, but not the session"
        )
    whole = f"{len(told)} sessions in the journals of {len(others)} nodes"
    if within == "none":
        return f"{whole}; no journal of this node was given"
    return f"{whole} that this journal's times don't fully cover"
