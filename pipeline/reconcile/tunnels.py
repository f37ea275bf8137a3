"""Comparison of the records of neighbouring hops of a tunnel.

Records are matched by trace, hop and both nodes. An origin may reuse a trace, so records are
counted and summed. Clocks are not compared. A missing record proves nothing, because a crash loses
records; mismatched byte counts do.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from parley._node.federation.limits import TUNNEL_MEMORY
from parley._pipeline.reconcile.sessions import Found, Row

LARGEST: Final = 2**63 - 1
# For an interrupted tunnel, in one direction: bytes buffered at the first server and in flight.
MOST_LOST: Final = 2 * TUNNEL_MEMORY
_MISSING: Final = "tunnel-missing"
_OUTSIDE: Final = "not-covered"

_Record = tuple[int, int, str, int]  # began, ended (microseconds), segment, offset
# One problem of a node: kind, node, record, count, evidence.
_Wrong = tuple[str, str, _Record, int, str]


@dataclass(slots=True)
class _Neighbour:
    """The records of one neighbour for a trace; sums are capped because nodes choose the values."""

    node: str
    has: int = 0
    expects: int = 0
    length: int = 0
    forward: int = 0
    back: int = 0
    record: _Record | None = None

    def add(self, row: Row, *, expects: bool) -> None:
        """Add the record of a hop; `expects` is whether its neighbour must have one too."""
        self.has += 1
        self.expects += expects
        self.length = min(self.length + row["length"], LARGEST)
        self.forward = min(self.forward + row["forward"], LARGEST)
        self.back = min(self.back + row["back"], LARGEST)
        record = began(row), ended(row), row["segment"], row["offset"]
        self.record = record if self.record is None else min(self.record, record)


def began(row: Row) -> int:
    return int(row["began_ns"]) // 1000


def ended(row: Row) -> int:
    return int(row["ended_ns"]) // 1000


def compare_tunnels(
    tunnels: Iterable[Row], covered: Mapping[str, tuple[int, int]]
) -> Iterator[Found]:
    """Return findings `tunnel-differs`, `tunnel-missing` and `not-covered`.

    `tunnels` are silver's rows. `covered` has the times for which each journal has records. Nodes
    without a journal are skipped.
    """
    outside: defaultdict[str, list[_Wrong]] = defaultdict(list)
    for trace, one, other in _pairs(tunnels):
        for wrong in _disagreements(trace, one, other):
            kind, node, record, count, evidence = wrong
            times = covered.get(node)
            if kind == _MISSING and times is None:
                continue
            if kind == _MISSING and times and not (times[0] <= record[0] and record[1] <= times[1]):
                outside[node].append(wrong)
            else:
                yield _found(kind, node, record, count, evidence)
    for node, some in outside.items():
        count = sum(wrong[3] for wrong in some)
        evidence = (
            f"{count} tunnels in the neighbours' journals that are not wholly within the times "
            "of this journal"
        )
        yield _found(_OUTSIDE, node, min(wrong[2] for wrong in some), count, evidence)


def _found(kind: str, node: str, record: _Record, count: int, evidence: str) -> Found:
    return Found(
        kind,
        node,
        time=record[0],
        segment=record[2],
        offset=record[3],
        events=count,
        evidence=evidence,
    )


def _pairs(tunnels: Iterable[Row]) -> Iterator[tuple[str, _Neighbour, _Neighbour]]:
    """Yield the records of each pair of neighbours and trace."""
    pairs: dict[tuple[str, int, str, str], tuple[_Neighbour, _Neighbour]] = {}

    def sides(trace: str, hop: int, one: str, other: str) -> tuple[_Neighbour, _Neighbour]:
        return pairs.setdefault((trace, hop, one, other), (_Neighbour(one), _Neighbour(other)))

    for row in tunnels:
        trace, hop, journal = row["trace"], row["hop"], row["journal"]
        one, _ = sides(trace, hop, journal, row["after"])
        one.add(row, expects=hop + 2 < row["length"])
        if hop > 0:
            _, other = sides(trace, hop - 1, row["before"], journal)
            other.add(row, expects=hop > 1)
    for (trace, *_), (one, other) in pairs.items():
        yield trace, one, other


def _disagreements(trace: str, one: _Neighbour, other: _Neighbour) -> Iterator[_Wrong]:
    """Yield the faults of a pair, by journal."""
    if one.has == other.has and one.record is not None:
        evidence = next(_contradictions(trace, one, other), None)
        if evidence is not None:
            yield "tunnel-differs", one.node, one.record, one.has, evidence
    for witness, side, did in ((one, other, "forwarded it to"), (other, one, "received it from")):
        missing = witness.expects - side.has
        if missing <= 0 or witness.record is None:
            continue
        if side.has == 0:
            evidence = (
                f"tunnel {trace}: {witness.node} recorded that it {did} this node, which has no "
                "record of it"
            )
        else:
            evidence = (
                f"tunnel {trace}: {witness.node} recorded {witness.expects} times that it {did} "
                f"this node, which has {side.has} records of it"
            )
        yield _MISSING, side.node, witness.record, missing, evidence


def _contradictions(trace: str, one: _Neighbour, other: _Neighbour) -> Iterator[str]:
    if one.length != other.length:
        yield f"tunnel {trace}: {one.node} and {other.node} recorded different path lengths"
    ways = (
        ("forward", one, one.forward, other, other.forward),
        ("back", other, other.back, one, one.back),
    )
    for way, first, before, second, behind in ways:
        lost = before - behind
        if lost < 0 or lost > MOST_LOST * one.has:
            yield (
                f"tunnel {trace}, {way}: {before} bytes at {first.node}, but {behind} at the next "
                f"server, {second.node}"
            )
