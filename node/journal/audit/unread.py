"""Events of a direction that do not open although the auditor's key opens its session.

One rule: they are one finding, which says why the first does not; who has no key for a session
is told of that once, and not here. Decrypts nothing.
"""

from typing import Final

from node.journal.audit.keyring import MOST_UPDATES, Keyring
from node.journal.audit.lanes import Lanes
from node.journal.audit.seals import Sink

_UPDATES: Final = f"after more than {MOST_UPDATES:,} key updates of a generation"


class Unread:
    """Those since reading began. `last` is the place of the last event that did not open, for
    whatever reason."""

    __slots__ = ("_count", "_direction", "_first", "_keyring", "_sink", "_why", "last")

    def __init__(self, sink: Sink, direction: int, keyring: Keyring | None) -> None:
        self._sink = sink
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
        self._sink.finding(
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
