"""Sessions compared as a whole: contradictory ends, and journals that are missing.

A Close that may have been lost on its way proves nothing, and a missing journal is reported without
a reason. Nothing here looks at what the events say.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from parley._pipeline.reconcile.ends import End, Found, by_session, least


def compare_ends(ends: Iterable[End]) -> Iterator[Found]:
    """A finding `end-differs` for each two session ends that cannot both be true.

    They cannot if an end says that it got the other's Close, and the other says that it did
    not send one or one with another code; or if an end says that it received more than the
    other sent.
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
    """Sentences on what is not true of one of them."""
    sides = (
        (initiator, responder, "initiator", "responder"),
        (responder, initiator, "responder", "initiator"),
    )
    for a, b, one, other in sides:
        if a.was_closed and b.was_closed:
            yield "each end says that the other closed"
        if a.was_closed and None not in (a.code, b.code) and a.code != b.code:
            yield f"the {one} was sent Close {a.code}, the {other} ended with {b.code}"
        if a.received_place is None or b.sent_place is None:
            continue
        if a.received_place > b.sent_place:
            yield (
                f"the {one} received up to place {a.received_place}, the {other} sent up to "
                f"{b.sent_place}"
            )
        if a.was_closed and a.received_place < b.sent_place:
            yield (
                f"the {one} got the Close at place {a.received_place}, the {other} sent up to "
                f"{b.sent_place}"
            )


def missing_journals(
    ends: Sequence[End], covered: Mapping[str, tuple[int, int]]
) -> Iterator[Found]:
    """Findings `missing-journal` and `not-covered`; `journal` is the node whose journal is missing.

    A node without any journal: one, `count` its sessions. A node whose journal has records
    from before a session and from after it but not that session: one for each session. A
    session that begins before the first or ends after the last record of its journal:
    `not-covered`, one for the node.
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
    """What others' journals have of a node, as a sentence."""
    others = {end.journal for end in told}
    if within == "inside":
        return (
            f"{min(others)} has this session; this journal has records from before it and from "
            "after it, and none of it"
        )
    whole = f"{len(told)} sessions in the journals of {len(others)} nodes"
    if within == "none":
        return f"{whole}; no journal of this node was given"
    return f"{whole} that are not wholly within the times of this journal"
