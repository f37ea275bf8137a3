"""Sent and received items, in numbers: the receiver's checks and both sides' counts.

Correct items are not kept, so a ledger of a billion events is as small as a ledger of one. It is
independent of nodes and processes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random  # noqa: TID251  # seeded: the content of streams
from typing import Any, Final

from parley._node.errors import PeerClosedError
from parley._node.protocol.codes import CloseCode

# The content of byte streams, a function of the position. The period is prime, so that lost or
# repeated pieces with the size of a power of two, or of a window, are detected.
PERIOD: Final = 1_000_003
LARGEST_PIECE: Final = 256 * 1024
_BLOCK: Final = Random(4).randbytes(PERIOD)
_CONTENT: Final = _BLOCK + _BLOCK[:LARGEST_PIECE]
# Numbers that are remembered as missing, so that one that comes late is known as such.
REMEMBERED: Final = 1_000
# Reported violations of one connection; further ones are counted.
TOLD: Final = 20

Complain = Callable[[str], None]


def content(position: int, size: int) -> bytes:
    """`size` bytes (256 KiB at most) of a byte stream from `position`."""
    start = position % PERIOD
    return _CONTENT[start : start + size]


@dataclass(slots=True)
class Sent:
    """What its sender knows of a flow: `count` were sent, of which the other side has said
    that it took `acknowledged`. Not `exact` if fewer may arrive, by the reader's wish."""

    count: int = 0
    acknowledged: int = 0
    exact: bool = True

    def next(self) -> int:
        """The number of the next one, which counts as sent from now on."""
        self.count += 1
        return self.count - 1


@dataclass(slots=True)
class Numbers:
    """A sequence of numbered items as its reader sees it: `expected` is the next number.

    `missing` counts numbers skipped since the row began: violations, unless `may_miss`; `missed`
    counts those of all rows.
    """

    complain: Complain
    may_miss: bool = False
    expected: int = 0
    missing: int = 0
    missed: int = 0
    _passed_over: set[int] = field(default_factory=set)

    def restart(self, first: int) -> None:
        """A new row begins, with this number."""
        self.expected = first
        self.missing = 0
        self._passed_over.clear()

    def take(self, number: object) -> None:
        """Something with this number came."""
        if number == self.expected:
            self.expected += 1
        elif not isinstance(number, int):
            self.complain(f"not a number but {number!r:.60}")
        elif number > self.expected:
            self._gap(number)
        elif number in self._passed_over:
            self._passed_over.discard(number)
            self.complain(f"wrong order: {number} came after {self.expected - 1}")
        else:
            self.complain(f"duplicate: {number} came again, {self.expected} was next")

    def end(self, count: int) -> None:
        """The row is over and should have been up to `count`."""
        if self.expected != count:
            self.complain(f"lost at the end: {self.expected} of {count} came")

    def _gap(self, number: int) -> None:
        skipped = range(self.expected, number)
        self.missing += len(skipped)
        self.missed += len(skipped)
        if not self.may_miss:
            self.complain(f"gap: {skipped[0]} to {skipped[-1]} did not come")
        room = REMEMBERED - len(self._passed_over)
        self._passed_over.update(skipped[: max(0, room)])
        self.expected = number + 1


@dataclass(slots=True)
class Bytes:
    """A byte stream as its reader sees it; `expected` is the position of the next byte."""

    complain: Complain
    expected: int = 0

    def take(self, piece: bytes) -> None:
        """A piece of at most 256 KiB came."""
        if piece != content(self.expected, len(piece)):
            self.complain(f"other bytes than were sent, from {self.expected} on ({len(piece)})")
        self.expected += len(piece)

    def end(self, position: int) -> None:
        """The other side finished, and had sent up to `position`."""
        if self.expected != position:
            self.complain(f"lost at the end: {self.expected} of {position} bytes came")


class Book:
    """One connection of one side.

    `ended` counts interrupted operations, by code; `took` counts items without a counter on both
    sides; `active` are the parts that still run, by name.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: dict[str, Sent] = {}
        self.received: dict[str, Numbers | Bytes] = {}
        self.ended: Counter[int] = Counter()
        self.took: Counter[str] = Counter()
        self.active: Counter[str] = Counter()
        self.violations: list[str] = []
        self.uncounted = 0
        self.graceful = False
        self.resumes = 0

    def complain(self, what: str) -> None:
        """A promise was broken."""
        if len(self.violations) < TOLD:
            self.violations.append(what)
        else:
            self.uncounted += 1

    def complain_of(self, flow: str, what: str) -> None:
        """A promise to a flow was broken."""
        self.complain(f"{flow}: {what}")

    def sending(self, flow: str) -> Sent:
        """Our side of a flow to the other side."""
        return self.sent.setdefault(flow, Sent())

    def numbers(self, flow: str, *, may_miss: bool = False) -> Numbers:
        """Our side of a flow of numbered things from the other side."""
        known = self.received.get(flow)
        if not isinstance(known, Numbers):
            known = self.received[flow] = Numbers(partial(self.complain_of, flow), may_miss)
        return known

    def bytes(self, flow: str) -> Bytes:
        """Our side of a flow of bytes from the other side."""
        known = self.received.get(flow)
        if not isinstance(known, Bytes):
            known = self.received[flow] = Bytes(partial(self.complain_of, flow))
        return known

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A task that runs as long as the connection: it may end only by the cut."""
        self.active[name] += 1
        try:
            yield
        except* PeerClosedError as group:
            for error in leaves(group):
                code = getattr(error, "code", None)
                self.ended[int(CloseCode.CONNECTION_LOST if code is None else code)] += 1
                if code != CloseCode.CONNECTION_LOST:
                    self.complain(f"{name} ended with {error}")
        except* Exception as group:
            for error in leaves(group):
                self.complain(f"{name} ended with {error!r}")
        finally:
            self.active[name] -= 1
            if not self.active[name]:
                del self.active[name]

    def tally(self) -> dict[str, Any]:
        """All of it in numbers, for the judge."""
        return {
            "number": self.number,
            "graceful": self.graceful,
            "resumes": self.resumes,
            "sent": {f: [s.count, s.acknowledged, s.exact] for f, s in self.sent.items()},
            "received": {flow: check.expected for flow, check in self.received.items()},
            "took": self.took,
            "missed": sum(c.missed for c in self.received.values() if isinstance(c, Numbers)),
            "ended": {str(code): count for code, count in self.ended.items()},
            "violations": self.violations,
            "uncounted": self.uncounted,
        }


def leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """The errors of a group and of the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
