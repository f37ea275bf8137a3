"""The spans of one session's directions, each linked to the next.

Two spans are linked if the later one begins with the chain value, place and state at which the
earlier one ended. Within linked spans, a seal covers everything before it. This module uses neither
tables nor Spark.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

from parley._node.journal.audit.output import CUT, NO_END, NO_START
from parley._pipeline.stitch.runs import Runs

# A span has the fields of `SPAN_FIELDS`, and a finding has those of `FINDING_FIELDS`.
Row = Mapping[str, Any]
_PLACE: Final = itemgetter("segment", "offset")


@dataclass(slots=True)
class LinkedSpan:
    """A span and its relation to later spans.

    `seal_ns` is the time of the first valid seal in a later linked span. `waits` is true if a seal
    can still come.
    """

    span: Row
    is_new: bool
    next: "LinkedSpan | None" = None
    has_before: bool = False
    seal_ns: int | None = None
    waits: bool = False
    is_tip: bool = False

    @property
    def fits(self) -> bool:
        """Return whether the next span continues where this one ended."""
        if self.next is None:
            return False
        one, following = self.span, self.next.span
        return not one["ended"] and all(
            following[f"start_{name}"] == one[f"end_{name}"] for name in ("chain", "place", "state")
        )

    @property
    def is_alive(self) -> bool:
        """Return whether the direction continues after the input."""
        return self.next is None and not self.span["ended"]

    @property
    def where(self) -> str:
        return f"{self.span['segment']}:{self.span['offset']}"


class Verdict(NamedTuple):
    """The spans and findings of a session."""

    spans: list[LinkedSpan]
    findings: list[dict[str, Any]]


def link(spans: Sequence[tuple[Row, bool]], runs: Runs) -> Verdict:
    """Link the spans of one session in one journal; yield each with whether it is in this batch."""
    linked: list[LinkedSpan] = []
    by_direction = sorted(spans, key=lambda one: (one[0]["direction"], *_PLACE(one[0])))
    for _, group in groupby(by_direction, key=lambda one: one[0]["direction"]):
        linked += _link_direction([LinkedSpan(span, is_new) for span, is_new in group], runs)
    findings = [finding for one in linked for finding in _break_after(one)]
    findings += _of_session(
        "no-start",
        NO_START,
        min((_PLACE(one.span) for one in linked if _has_no_start(one, runs)), default=None),
        linked,
    )
    last = [one for one in linked if one.is_alive and _is_over(one, runs)]
    cut = [one for one in last if _goes_past(one, runs)]
    whole = [one for one in cut if _explains_nothing(one, runs)]
    findings += _of_session("cut-short", CUT, max(map(_end, whole), default=None), linked)
    findings += _of_session(
        "no-end", NO_END, max((_end(one) for one in last if one not in cut), default=None), linked
    )
    return Verdict(linked, findings)


def _link_direction(spans: list[LinkedSpan], runs: Runs) -> Iterable[LinkedSpan]:
    for one, following in pairwise(spans):
        one.next = following
        following.has_before = True
    seal_ns: int | None = None  # of the piece after the current span
    goes_on = False
    over = _is_over(spans[-1], runs)
    for one in reversed(spans):
        if not one.fits:
            seal_ns, goes_on = None, False
        one.seal_ns = seal_ns
        goes_on = goes_on or one.is_alive
        one.waits = goes_on and not over and seal_ns is None
        one.is_tip = (one.is_alive and not over) or (one.waits and one.span["pending"] > 0)
        if one.span["sealed_ns"] is not None:
            seal_ns = one.span["sealed_ns"]
    return spans


def _end(one: LinkedSpan) -> tuple[str, int]:
    return one.span["end_segment"], one.span["end_offset"]


def _is_over(last: LinkedSpan, runs: Runs) -> bool:
    """Return whether nothing of a direction can follow its last span."""
    return runs.is_over(last.span["segment"]) or _goes_past(last, runs)


def _goes_past(last: LinkedSpan, runs: Runs) -> bool:
    """Return whether the run continues although a direction has no end."""
    return runs.goes_past(*_end(last))


def _explains_nothing(last: LinkedSpan, runs: Runs) -> bool:
    """Return whether no damage or missing segment after a direction can explain its missing end."""
    return not last.span.get("lost") and runs.is_whole_behind(last.span["end_segment"])


def _has_no_start(one: LinkedSpan, runs: Runs) -> bool:
    """Return whether a direction appears without a start although nothing before it was pruned."""
    if one.has_before or not one.is_new or one.span["started"]:
        return False
    return not runs.begins_with(one.span["segment"])


def _break_after(one: LinkedSpan) -> Iterator[dict[str, Any]]:
    """Return the finding if the next span doesn't fit or the chain doesn't reach the end of this
    one.
    """
    span, following = one.span, one.next
    unplaced = span["unplaced"]
    breaks = following is not None and following.is_new and not one.fits
    if not breaks and not (following is None and one.is_new and unplaced):
        return
    place, count = span["end_place"] + 1, 1
    named = span["end_place"] if following is None else following.span["start_place"]
    missing = named - span["end_place"] - unplaced
    if missing > 0:
        kind, count = "gap", missing
        evidence = f"{missing} events are missing before this range"
    elif unplaced:
        kind, count = "bad-chain", unplaced
        evidence = (
            f"bytes were altered at place {place}: from here to the next checkpoint {unplaced} "
            "events cannot be verified"
        )
    elif span["ended"]:
        kind, place = "checkpoint-mismatch", span["end_place"]
        evidence = "the session continues after its end"
    else:
        kind, place = "checkpoint-mismatch", span["end_place"]
        evidence = (
            f"the checkpoint is for place {named}; its place, chain value or session values don't "
            f"match the events before it, which end at place {place}"
        )
    at = (span["end_segment"], span["end_offset"]) if following is None else _PLACE(following.span)
    yield {
        "kind": kind,
        "journal": span["journal"],
        "segment": at[0],
        "session": span["session"],
        "direction": span["direction"],
        "place": place,
        "time_ns": None,
        "offset": at[1],
        "count": count,
        "evidence": evidence,
    }


def _of_session(
    kind: str, evidence: str, at: tuple[str, int] | None, spans: Sequence[LinkedSpan]
) -> Iterator[dict[str, Any]]:
    if at is None:
        return
    yield {
        "kind": kind,
        "journal": spans[0].span["journal"],
        "segment": at[0],
        "session": spans[0].span["session"],
        "direction": None,
        "place": None,
        "time_ns": None,
        "offset": at[1],
        "count": 1,
        "evidence": evidence,
    }
