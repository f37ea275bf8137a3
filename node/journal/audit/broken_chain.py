"""Events after a direction's chain broke, which are tried in other orders.

An event has a place only if the chain leads to it; places are never guessed. Other events wait for
the next checkpoint, whose count of events distinguishes altered events from missing ones.
"""

from typing import Final

from parley._node.journal.audit.direction import DirectionTracker, WireEvent
from parley._node.journal.audit.rows import BAD_CHAIN, BAD_SEAL, DUPLICATE, GAP

# How many events are tried in other orders and kept until the next checkpoint.
MAX_TRIED: Final = 64
MAX_KEPT: Final = 2**16
MAX_KEPT_SIZE: Final = 2**27  # Bytes.


class BrokenChain:
    """The events of a direction since its chain broke before `first`.

    `damaged`: the break already has a finding (a wrong CRC).
    """

    def __init__(
        self, tracker: DirectionTracker, first: WireEvent | None, *, damaged: bool
    ) -> None:
        self._tracker = tracker
        self._place = tracker.place + 1
        self._kept: list[WireEvent] = []
        self._marks: set[bytes] = set()
        self._unread = 0  # Events that could not be parsed.
        self._overflow = 0
        self._size = 0
        self._damaged = damaged
        self._reported = False
        if first is None:
            self._unread = 1
        else:
            self._keep(first)

    def take(self, wire: WireEvent | None) -> bool:
        """Process the next event; return whether the chain is unbroken again."""
        tracker = self._tracker
        if wire is None:
            self._unread += 1
            return False
        if wire.mark in tracker.recent or wire.mark in self._marks:
            report_copy(tracker, wire)
            return False
        value = tracker.fits(wire)
        if value is not None:
            tracker.accept(wire, value)
            return self._kept_ones_follow()
        if self._first_was_marked_wrongly(wire):
            return True
        self._keep(wire)
        return False

    def mark_reported(self) -> None:
        """Mark the events so far as reported by an earlier reading."""
        self._overflow += len(self._kept)
        self._kept = []
        self._reported = True

    @property
    def unplaced(self) -> int:
        """The number of events without a place that earlier readings did not report."""
        return 0 if self._reported else len(self._kept) + self._unread + self._overflow

    def leave(self) -> None:
        """Add rows without a finding for events without a place."""
        self._tracker.epoch_keys.guess = True
        for wire in self._kept:
            self._tracker.refuse(wire, None, BAD_CHAIN)

    def end(self, place: int | None, chain: bytes | None) -> bool:
        """End at a checkpoint or end record with `place` and `chain`, or None without one.

        Returns whether the chain turned out to be unbroken.
        """
        tracker = self._tracker
        kept = self._kept
        if place == tracker.place + 1 and len(kept) == 1 and not self._unread + self._overflow:
            value = tracker.value_after(kept[0])
            if value == chain:
                self._marked_wrongly(kept[0], value)
                return True
        have = len(kept) + self._unread + self._overflow
        status, kind, count = BAD_CHAIN, "bad-chain", max(have, 1)
        first_place: int | None = tracker.place + 1
        if place is None:
            evidence = "the chain does not continue, and no later checkpoint explains why"
        elif place == tracker.place + have:
            evidence = (
                f"bytes were altered at place {tracker.place + 1}: from here to the next "
                f"checkpoint {have} events cannot be verified"
            )
        elif place > tracker.place + have:
            missing = place - tracker.place - have
            status, kind, count = GAP, "gap", missing
            evidence = f"{missing} events are missing before {have} that cannot be verified"
            first_place = place - have + 1
        else:
            extra = tracker.place + have - place
            evidence = f"{extra} events are not part of the chain"
            first_place = None if place == tracker.place else first_place
        # A single damaged record was already reported; the records after it were not.
        if not self._reported and (not self._damaged or kind == "gap" or have > 1):
            first = kept[0] if kept else None
            tracker.out.finding(
                kind,
                tracker.direction,
                self._place,
                first.time if first else None,
                first.offset if first else 0,
                evidence,
                count,
                first.segment if first else None,
            )
        tracker.epoch_keys.guess = True
        for number, wire in enumerate(kept):
            at = None if first_place is None else first_place + number
            tracker.refuse(wire, at, status)
        return False

    def _keep(self, wire: WireEvent) -> None:
        self._size += wire.size
        if len(self._kept) < MAX_KEPT and self._size <= MAX_KEPT_SIZE:
            self._kept.append(wire)
            self._marks.add(wire.mark)
        else:
            self._overflow += 1
            self._tracker.refuse(wire, None, BAD_CHAIN)

    def _kept_ones_follow(self) -> bool:
        """Place events that came too early; return whether all of them have places."""
        tracker, early = self._tracker, 0
        first = self._kept[0] if self._kept else None
        again = len(self._kept) <= MAX_TRIED
        while again and self._kept:
            again = False
            for wire in self._kept:
                value = tracker.fits(wire)
                if value is not None:
                    tracker.accept(wire, value, BAD_CHAIN)
                    self._kept.remove(wire)
                    early += 1
                    again = True
                    break
        if early and first is not None:
            tracker.out.finding(
                "reordered",
                tracker.direction,
                self._place,
                first.time,
                first.offset,
                f"{early} events are in the journal before events that precede them in the chain",
                early,
                first.segment,
            )
        return not self._kept and not self._unread

    def _first_was_marked_wrongly(self, wire: WireEvent) -> bool:
        """Return whether the first event's 16 bytes (or seal) are wrong, but not its blob."""
        tracker = self._tracker
        if len(self._kept) != 1 or self._unread or self._place != tracker.place + 1:
            return False
        first = self._kept[0]
        before = tracker.chain.value
        tracker.chain.value = value = tracker.value_after(first)
        after = tracker.fits(wire)
        tracker.chain.value = before
        if after is None:
            return False
        self._marked_wrongly(first, value)
        tracker.accept(wire, after)
        return True

    def _marked_wrongly(self, wire: WireEvent, value: bytes) -> None:
        tracker = self._tracker
        status, kind = (BAD_SEAL, "bad-seal") if tracker.each else (BAD_CHAIN, "bad-chain")
        if not self._damaged and not self._reported:
            what = "seal" if tracker.each else "chain value"
            tracker.out.finding(
                kind,
                tracker.direction,
                self._place,
                wire.time,
                wire.offset,
                f"the event has a wrong {what}, but the chain continues after it",
                segment=wire.segment,
            )
        tracker.accept_marked_wrongly(wire, value, status)


def report_copy(tracker: DirectionTracker, wire: WireEvent) -> None:
    """Report an event that the journal already has."""
    place = None
    if wire.mark in tracker.recent:  # Each accepted event left one mark.
        place = tracker.place - (len(tracker.recent) - 1 - tracker.recent.index(wire.mark))
    tracker.out.finding(
        "duplicate",
        tracker.direction,
        place,
        wire.time,
        wire.offset,
        "the journal already contains the same event",
    )
    tracker.refuse(wire, None, DUPLICATE)
