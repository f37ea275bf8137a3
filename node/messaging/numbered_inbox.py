"""The notes of a subscription to a topic that remembers, which came and were not read.

Each note has a number (section 18): one that was taken before is dropped, and what is missing is
counted. Numbers are looked at when notes are read, and once more by whoever wants to know up to
where notes have come.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import Value
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import MAX_UINT
from parley._node.messaging.inbox import NoteInbox
from parley._node.messaging.kept import Beginning, TopicPosition
from parley._node.messaging.notes import NO_HEADERS
from parley._node.protocol import event_types
from parley._node.protocol.codes import NOTES
from parley._node.protocol.memory_budget import MemoryBudget

LAST_NUMBER: Final = MAX_UINT


class NumberedInbox(NoteInbox):
    """What waits for a reader that had the notes up to `after`.

    `number` is that of the last note that was read, `gaps` how many were missing before it,
    `replaced` how many did not come because later notes of their keys replaced them, and
    `repeated` how many came that had been taken. `recovered` says that no note is missing
    between `after` and the beginning.
    """

    __slots__ = ("_wire", "epoch", "gaps", "number", "recovered", "repeated", "replaced")

    def __init__(
        self,
        on_note: Callable[[], None],
        consume: Callable[[int, int], None],
        account: MemoryBudget,
        begins: Beginning,
        after: TopicPosition | None,
    ) -> None:
        super().__init__(on_note, consume, account)
        (self.epoch, number), recovered = begins
        same = after is not None and after.epoch == self.epoch
        before = after.number if after is not None and same else number
        # What the numbers say holds, whatever the publisher says.
        self.recovered = recovered and same and number <= before
        self.gaps = max(0, number - before)
        self.repeated = self.replaced = 0
        # The last note on the wire, and the last that was taken.
        self._wire = number
        self.number = max(before, number)

    @property
    def position(self) -> TopicPosition:
        """That of the last note that came, read or not. It looks through all that waits."""
        wire, number = self._wire, self.number
        for subcategory, payload, _ in self._waiting:
            try:
                notes, cells = _read_cells(subcategory, payload)
                wire = _last_of(notes, cells, wire)
            except LbmDecodeError:
                continue
            number = max(number, wire) if notes else number
        return TopicPosition(self.epoch, number)

    def _read(self, subcategory: int, payload: bytes) -> tuple[list[Value], Mapping[str, Value]]:
        notes, cells = _read_cells(subcategory, payload)
        last = self._wire = _last_of(notes, cells, self._wire)
        headers: Mapping[str, Value] = cells.get(keys.HEADERS, NO_HEADERS)
        if not notes:
            return notes, headers
        first, taken = last + 1 - len(notes), self.number
        if first <= taken:
            repeated = min(len(notes), taken + 1 - first)
            self.repeated += repeated
            notes = notes[repeated:]
        else:
            missing = first - 1 - taken
            replaced = min(missing, cells.get(keys.REPLACED, 0))
            self.replaced += replaced
            self.gaps += missing - replaced
        self.number = max(taken, last)
        return notes, headers


def _read_cells(subcategory: int, payload: bytes) -> tuple[list[Value], Mapping[int, Any]]:
    """The notes of an event, and its cells; raises LbmDecodeError."""
    if subcategory == NOTES:
        cells = event_types.NOTES.read(payload)
        return cells[keys.NOTES], cells
    cells = event_types.NOTIFY.read(payload)
    return [cells.get(keys.DATA)], cells


def _last_of(notes: list[Value], cells: Mapping[int, Any], wire: int) -> int:
    """The number of an event's last note, `wire` being that of the one before it.

    Raises:
        LbmDecodeError: there are no such numbers.
    """
    number = cells.get(keys.NUMBER)
    before = wire if type(number) is not int else number - 1
    if before + len(notes) > LAST_NUMBER:
        raise LbmDecodeError(f"a note has the number {before + len(notes)}; the last is 2^64 - 1")
    return before + len(notes)
