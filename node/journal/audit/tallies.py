"""What is counted over a direction and told in one finding: wrong seals, unreadable events."""

from typing import Final

from parley._node.journal.audit.keyring import MOST_UPDATES, Keyring, Lanes
from parley._node.journal.audit.output import SessionOutput
from parley._node.journal.audit.wire import WireEvent


class BadSeals:
    """The wrong seals since the last right one: where the first is, and how many. They are one
    finding, told when a right one comes or nothing more is read."""

    __slots__ = ("_count", "_direction", "_first", "_out")

    def __init__(self, out: SessionOutput, direction: int) -> None:
        self._out = out
        self._direction = direction
        self._first: tuple[int, int, int, str] | None = None  # place, time, offset, segment
        self._count = 0

    def add(self, place: int, wire: WireEvent) -> None:
        """The seal of an event is wrong; if its CRC is wrong too, that was told already."""
        if self._first is None and wire.damaged:
            return
        if self._first is None:
            self._first = place, wire.time, wire.offset, wire.segment
        self._count += 1

    def tell(self, *, mended: bool = False) -> None:
        """The finding, if there is one; `mended` by a right seal."""
        if self._first is None:
            return
        place, time, offset, segment = self._first
        what = "the signature over the chain at this place is not that of the sender"
        if self._count > 1:
            what += f", nor are those of the {self._count - 1} seals after it"
        if not mended:
            what += "; no valid one follows in what was read: the chain may have been rebuilt"
        self._out.finding(
            "bad-seal", self._direction, place, time, offset, what, self._count, segment
        )
        self.forget()

    def forget(self) -> None:
        """Forget them."""
        self._first = None
        self._count = 0


_UPDATES: Final = f"after more than {MOST_UPDATES:,} key updates of a generation"


class Unread:
    """Events that do not open although the auditor's key opens their session: one finding, with
    the reason for the first. A session for which there is no key has a finding of its own.

    `last` is the place of the last event that did not open, for whatever reason.
    """

    __slots__ = ("_count", "_direction", "_first", "_keyring", "_out", "_why", "last")

    def __init__(self, out: SessionOutput, direction: int, keyring: Keyring | None) -> None:
        self._out = out
        self._direction = direction
        self._keyring = keyring
        self._first: tuple[int, int, int] | None = None  # place, time, offset
        self._why = ""
        self._count = 0
        self.last: int | None = None

    def add(
        self, place: int, time: int, offset: int, lanes: Lanes, generation: int, *, told: bool
    ) -> None:
        """The event at a place does not open; `told` by an earlier reading."""
        keyring = self._keyring
        if told or keyring is None or not keyring.is_open:
            return
        if self._first is None:
            self._first = place, time, offset
            if lanes.secret is not None:
                self._why = "where events are missing before"
            elif keyring.has(generation):
                self._why = _UPDATES
            else:
                self._why = f"without the secret of generation {generation}"
        self._count += 1

    def tell(self) -> None:
        """The finding, if there is one."""
        if self._first is None or self.last is None:
            return
        place, time, offset = self._first
        self._out.finding(
            "undecryptable",
            self._direction,
            place,
            time,
            offset,
            f"{self._count} events from place {place} to {self.last} do not open, {self._why}, "
            "though the auditor's key opens the session",
            self._count,
        )
        self._first, self._count = None, 0
