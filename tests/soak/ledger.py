"""Numbers of sent and received data: the receiver's checks and both sides' counts.

Correct data is not stored, so a ledger of a billion events is as small as one of a single event.
This module doesn't depend on nodes or processes.
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

# The content of byte streams, by position. Its length is prime, so that lost or repeated chunks,
# whose sizes are powers of two or windows, are detected.
PERIOD: Final = 1_000_003
LARGEST_PIECE: Final = 256 * 1024
_BLOCK: Final = Random(4).randbytes(PERIOD)
_CONTENT: Final = _BLOCK + _BLOCK[:LARGEST_PIECE]
# Missing numbers that are remembered, to recognise those that arrive late.
REMEMBERED: Final = 1_000
# Violations reported for one connection; others are only counted.
TOLD: Final = 20

Complain = Callable[[str], None]


def content(position: int, size: int) -> bytes:
    """Return `size` bytes (256 KiB at most) of a byte stream from `position` on."""
    start = position % PERIOD
    return _CONTENT[start : start + size]


@dataclass(slots=True)
class Sent:
    """A flow from its sender's view: `count` sent, of which the other side confirmed
    `acknowledged`.

    It isn't `exact` if the reader may choose to receive fewer.
    """

    count: int = 0
    acknowledged: int = 0
    exact: bool = True

    def next(self) -> int:
        """Return the next number, which counts as sent from now on."""
        self.count += 1
        return self.count - 1


@dataclass(slots=True)
class Numbers:
    """A flow of numbered items from its reader's view: `expected` is the next number.

    `missing` counts skipped numbers since the row began; they are violations unless `may_miss`.
    `missed` counts those of all rows.
    """

    complain: Complain
    may_miss: bool = False
    expected: int = 0
    missing: int = 0
    missed: int = 0
    _passed_over: set[int] = field(default_factory=set)

    def restart(self, first: int) -> None:
        """Begin a new row with this number."""
        self.expected = first
        self.missing = 0
        self._passed_over.clear()

    def take(self, number: object) -> None:
        """Record the arrival of this number."""
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
        """End the row, which should have contained all numbers below `count`."""
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
    """A byte stream from its reader's view; `expected` is the position of the next byte."""

    complain: Complain
    expected: int = 0

    def take(self, piece: bytes) -> None:
        """Check a received chunk of at most 256 KiB."""
        if piece != content(self.expected, len(piece)):
            self.complain(f"other bytes than were sent, from {self.expected} on ({len(piece)})")
        self.expected += len(piece)

    def end(self, position: int) -> None:
        """Check the end of the stream; the other side had sent all bytes up to `position`."""
        if self.expected != position:
            self.complain(f"lost at the end: {self.expected} of {position} bytes came")


class Book:
    """One connection of one side.

    `ended` counts interrupted requests by code. `took` counts received data that has no count of
    its own on both sides. `active` contains the running parts by name.
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
        """Record a broken promise."""
        if len(self.violations) < TOLD:
            self.violations.append(what)
        else:
            self.uncounted += 1

    def complain_of(self, flow: str, what: str) -> None:
        """Record a broken promise about a flow."""
        self.complain(f"{flow}: {what}")

    def sending(self, flow: str) -> Sent:
        """Return a flow from this side to the other."""
        return self.sent.setdefault(flow, Sent())

    def numbers(self, flow: str, *, may_miss: bool = False) -> Numbers:
        """Return a flow of numbered items from the other side."""
        known = self.received.get(flow)
        if not isinstance(known, Numbers):
            known = self.received[flow] = Numbers(partial(self.complain_of, flow), may_miss)
        return known

    def bytes(self, flow: str) -> Bytes:
        """Return a flow of bytes from the other side."""
        known = self.received.get(flow)
        if not isinstance(known, Bytes):
            known = self.received[flow] = Bytes(partial(self.complain_of, flow))
        return known

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Run a part of the load that may end only with the connection."""
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
        """Return all numbers, for the judge."""
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
    """Return the errors of a group and its nested groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
