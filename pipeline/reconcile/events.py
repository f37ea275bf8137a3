"""Comparison of a session's events in its two journals.

Events are matched by stream, size and digest: the 16 bytes of the chain that identify the event and
all events before it. They are not matched by place, because places differ after a gap in one
journal. Rows are not read for a block of places with the same count and checksum in both journals,
which is true of nearly all blocks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.reconcile.sessions import End, Found, by_session
from parley._pipeline.summary.facts import EventFacts, block_of, first_of_block

RUN_BITS: Final = 16  # a run of findings is reported in pieces of at most 65,536 places
# Number of events compared at a time, unless one direction of a session has more.
MANY_EVENTS: Final = 2**20

_DIRECTION: Final = ("session", "sender")
_BLOCK: Final = "block"
_KINDS: Final = ("differs", "not-received", "in-flight", "not-covered", "not-recorded", "not-sent")

_Numbers = npt.NDArray[np.int64]


class EventQuery(NamedTuple):
    """The blocks (session, sender, block), places and batches whose events must be read
    individually.

    An event is in a different batch than its neighbours only if it had to wait for a seal.
    """

    blocks: pa.Table
    sessions: Sequence[str]
    first_place: int
    last_place: int
    first_batch: int
    last_batch: int

    @classmethod
    def of(cls, group: Sequence["SessionDirection"]) -> "EventQuery":
        keys = [(one.session, one.sender, block) for one in group for block in one.blocks]
        sessions, senders, blocks = zip(*keys, strict=True)
        batches = [batch for one in group for batch in one.batches]
        return cls(
            pa.table([sessions, senders, blocks], names=[*_DIRECTION, _BLOCK]),
            sorted(set(sessions)),
            first_of_block(min(blocks)),
            first_of_block(max(blocks) + 1) - 1,
            min(batches),
            max(batches),
        )

    def among(self, rows: pa.Table) -> pa.Table:
        """Return the rows in these blocks without duplicates."""
        names = rows.schema.names
        rows = rows.filter(
            (pc.field("item") == 0)
            & ((pc.field("inside") == 0) | pc.field("inside").is_null())
            & (pc.field("status") != "duplicate")
            & pc.field("place").is_valid()
            & pc.field("wire_size").is_valid()
        )
        rows = rows.append_column(_BLOCK, pa.array(block_of(rows.column("place").to_numpy())))
        rows = rows.join(self.blocks, self.blocks.schema.names, join_type="left semi")
        return rows.select(names).combine_chunks()


# Returns the requested rows, and possibly more, with the columns of
# `pipeline.summary.facts.NEEDED`.
Reader = Callable[[EventQuery], pa.Table]


@dataclass(slots=True)
class SessionDirection:
    """The differing blocks in one direction of a session.

    It also has the range of places, in each journal's numbering, in which the two journals agree.
    """

    session: str
    sender: str
    blocks: list[int] = field(default_factory=list)
    events: int = 0
    batches: list[int] = field(default_factory=list)
    spans: dict[bool, tuple[int, int]] = field(default_factory=dict)  # indexed by is_sent

    def agree(self, is_sent: bool, first: int, last: int) -> None:
        low, high = self.spans.get(is_sent, (first, last))
        self.spans[is_sent] = min(low, first), max(high, last)


def compare_events(
    blocks: pa.Table, ends: Iterable[End], read: Reader, key: bytes
) -> Iterator[Found]:
    """Return findings `not-received`, `not-sent`, `differs`, `in-flight`, `not-recorded`,
    `not-covered`.

    `blocks` come from a summary whose checksums were computed with `key`. Sessions with only one
    journal are skipped. `count` is the number of events; `place`, `segment` and `offset` describe
    the first of them in the journal that contains it.
    """
    sessions = by_session(ends)
    both = [name for name, some in sessions.items() if len({end.journal for end in some}) > 1]
    unlike = [one for one in _directions(blocks, both) if one.blocks]
    for group in _groups(unlike):
        query = EventQuery.of(group)
        rows = query.among(read(query))
        facts = EventFacts.of(rows, key)
        events = _Events(facts, rows)
        for one, where in zip(group, events.of(group), strict=True):
            yield from _compare(one, events, where, sessions[one.session])


def _directions(blocks: pa.Table, sessions: Sequence[str]) -> list[SessionDirection]:
    query = pa.array(sessions, pa.string())
    rows = blocks.filter(pc.is_in(blocks.column("session"), query))
    rows = rows.sort_by([(name, "ascending") for name in (*_DIRECTION, "block", "is_sent")])
    names = ("session", "sender", "block", "is_sent", "count", "check", "first", "last", "since")
    columns = [rows.column(name).to_pylist() for name in (*names, "until")]
    found: dict[tuple[str, str], SessionDirection] = {}
    pairs: defaultdict[tuple[str, str, int], dict[bool, tuple[int, ...]]] = defaultdict(dict)
    for session, sender, block, is_sent, *counted in zip(*columns, strict=True):
        pairs[session, sender, block][is_sent] = tuple(counted)
    for (session, sender, block), sides in pairs.items():
        one = found.setdefault((session, sender), SessionDirection(session, sender))
        if len(sides) == 2 and sides[True][:2] == sides[False][:2]:
            for is_sent, numbers in sides.items():
                one.agree(is_sent, numbers[2], numbers[3])
            continue
        one.blocks.append(block)
        for numbers in sides.values():
            one.events += numbers[0]
            one.batches += numbers[4:]
    return list(found.values())


def _groups(directions: Sequence[SessionDirection]) -> Iterator[list[SessionDirection]]:
    group: list[SessionDirection] = []
    events = 0
    for one in directions:
        events += one.events
        if group and events > MANY_EVENTS:
            yield group
            group, events = [], one.events
        group.append(one)
    if group:
        yield group


class _Events:
    """Rows of events, grouped by session and direction."""

    def __init__(self, facts: EventFacts, rows: pa.Table) -> None:
        self._rows = rows
        self.identity = facts.identities()
        self.is_sent = facts.equals("direction", "sent")
        self.place = facts.numbers("place")
        self.has_digest = facts.has_digest()

    def of(self, group: Sequence[SessionDirection]) -> Iterator[_Numbers]:
        numbers = {(one.session, one.sender): at for at, one in enumerate(group)}
        keys = zip(*(self._rows.column(name).to_pylist() for name in _DIRECTION), strict=True)
        which = np.fromiter((numbers[key] for key in keys), np.int64, self._rows.num_rows)
        ends = np.bincount(which, minlength=len(group)).cumsum()
        yield from np.split(np.argsort(which, kind="stable"), ends[:-1])

    def record(self, at: int) -> dict[str, Any]:
        """Return the position, time and status of a row's event."""
        names = ["segment", "offset", "time", "status"]
        rows = self._rows.select(names).slice(at, 1)
        times = rows.column("time").cast(pa.int64())
        found: dict[str, Any] = rows.set_column(2, "time", times).to_pylist()[0]
        return found


def _compare(
    one: SessionDirection, events: _Events, where: _Numbers, ends: Sequence[End]
) -> Iterator[Found]:
    sides = {}
    for is_sent in (True, False):
        rows = where[events.is_sent[where] == is_sent]
        rows = rows[np.argsort(events.place[rows], kind="stable")[::-1]]
        # If an event has several copies, use the one with the greatest place.
        _, first = np.unique(events.identity[rows], return_index=True)
        sides[is_sent] = rows[first]
    _, here, there = np.intersect1d(
        events.identity[sides[True]], events.identity[sides[False]], return_indices=True
    )
    lonely = {}
    for is_sent, matched in ((True, here), (False, there)):
        rows = sides[is_sent]
        if len(matched):
            places = events.place[rows[matched]]
            one.agree(is_sent, int(places.min()), int(places.max()))
        lonely[is_sent] = np.delete(rows, matched)
    places, sent, received = _at_places(events, lonely[True], lonely[False])
    kinds, end = _kinds(one, places, sent >= 0, received >= 0, ends)
    for start, stop in _runs(places, kinds):
        kind, rows = _KINDS[kinds[start]], (int(sent[start]), int(received[start]))
        yield _found(one, kind, end, (int(places[start]), int(places[stop - 1])), rows, events)


def _at_places(
    events: _Events, sent: _Numbers, received: _Numbers
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return places, and the row that only the sender's or the receiver's journal has there, or -1.

    Two different events at one place are a pair, unless one has no digest: then both may be the
    same event, and the audit has already reported it.
    """
    places = np.unique(np.concatenate([events.place[sent], events.place[received]]))
    columns = []
    for rows in (sent, received):
        column = np.full(len(places), -1, np.int64)
        column[np.searchsorted(places, events.place[rows])] = rows
        columns.append(column)
    one, other = columns
    has = events.has_digest
    keep = (one < 0) | (other < 0)
    keep[~keep] = has[one[~keep]] & has[other[~keep]]
    return places[keep], one[keep], other[keep]


class _Evidence(NamedTuple):
    """What both journals record about the session's end."""

    receiver: str | None
    sent_last: int | None


def _kinds(
    one: SessionDirection, places: _Numbers, has_sent: Any, has_received: Any, ends: Sequence[End]
) -> tuple[_Numbers, _Evidence]:
    """Return the conclusion for each place, as an index into `_KINDS` (see docs/pipeline.md).

    After the last event that both journals contain, an event may have been in flight when the
    connection ended, unless the receiver's journal records at its end that it arrived.
    """
    sending = next((end for end in ends if end.journal == one.sender), None)
    receiving = next((end for end in ends if end.peer == one.sender), None)
    sent_first, sent_last = one.spans.get(True, (-1, -1))
    received_first, received_last = one.spans.get(False, (-1, -1))
    claimed = np.zeros(len(places), np.bool_)
    if receiving is not None:
        end = -1 if receiving.received_place is None else receiving.received_place
        claimed = (end >= places) | receiving.was_closed
    after_sent = places > sent_last if one.spans else np.ones(len(places), np.bool_)
    after_received = places > received_last if one.spans else np.ones(len(places), np.bool_)
    sent_end = None if sending is None else sending.sent_place
    kinds = np.select(
        [
            has_sent & has_received,
            ~has_received & after_sent & claimed,
            ~has_received & after_sent,
            ~has_received & (places < sent_first),
            ~has_received,
            after_received & (sent_end is None),
            ~after_received & (places < received_first),
        ],
        [0, 1, 2, 3, 1, 4, 3],
        5,
    )
    told = _Evidence(
        None if receiving is None else receiving.journal, sent_last if one.spans else None
    )
    return kinds.astype(np.int64), told


def _runs(places: _Numbers, kinds: _Numbers) -> Iterator[tuple[int, int]]:
    """Yield the bounds of runs of consecutive places with the same kind."""
    if not len(places):
        return
    breaks = (kinds[1:] != kinds[:-1]) | (places[1:] != places[:-1] + 1)
    breaks |= (places[1:] >> RUN_BITS) != (places[:-1] >> RUN_BITS)
    cuts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(places)]
    yield from pairwise(cuts)


def _found(
    one: SessionDirection,
    kind: str,
    told: _Evidence,
    places: tuple[int, int],
    rows: tuple[int, int],
    events: _Events,
) -> Found:
    """Return a run as a finding; the first event's record is stored in separate columns."""
    sent, received = (events.record(at) if at >= 0 else None for at in rows)
    record = sent or received or {}
    lacks_sent = kind in ("not-sent", "not-recorded") or (kind == "not-covered" and sent is None)
    by_sender = lacks_sent or kind == "differs"
    first, last = places
    which = f"place {first}" if first == last else f"places {first} to {last}"
    status = record["status"]
    if kind == "differs":
        evidence = f"{which}: sent was {_where(sent)}, received {_where(received)}"
    elif kind == "not-received":
        goes_on = told.sent_last is not None and first < told.sent_last
        does = "continues after them" if goes_on else "records at its end that they arrived"
        evidence = f"{which} sent ({status}), not in the receiver's journal, which {does}"
    elif kind == "in-flight":
        evidence = f"{which} sent ({status}), after the last event in the receiver's journal"
    elif kind == "not-sent":
        evidence = (
            f"{which} received ({status}), not in the sender's journal, which continues after "
            "them or has an end"
        )
    elif kind == "not-recorded":
        evidence = f"{which} received ({status}), after the last event in the sender's journal"
    else:
        evidence = f"{which}, before the first event that both journals have"
    return Found(
        kind,
        one.sender if by_sender else told.receiver,
        one.session,
        "sent" if by_sender else "received",
        first,
        record["time"],
        record["segment"],
        record["offset"],
        last - first + 1,
        evidence,
    )


def _where(record: Mapping[str, Any] | None) -> str:
    assert record is not None  # both journals have a record here
    return f"{record['segment']} at {record['offset']} ({record['status']})"
