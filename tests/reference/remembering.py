"""Topics with history (section 18): where a subscriber begins, and which notes a reader accepts.

Written from the document. Notes are values; messages are the maps of cells of Subscribe, Result,
Notify and Notes.
"""

from typing import Any

from tests.reference import cbor
from tests.reference.wire import CELLS

EPOCH_SIZE = 8
GREATEST = 2**64 - 1
MOST_NOTES = 4_096
NOTIFY, NOTES = 4, 8
_DATA, _NOTES = CELLS["data"], CELLS["notes"]
_EPOCH, _NUMBER, _RECOVERED = (CELLS[name] for name in ("topic_epoch", "number", "recovered"))
_REPLACED = CELLS["replaced"]


class Malformed(Exception):
    """A payload that may not be."""


def read(payload: bytes) -> dict[int, Any]:
    """Return the cells of a payload that belong to this section, with the right types."""
    try:
        cells = cbor.decode_payload(payload)
    except cbor.LbmError as error:
        raise Malformed(str(error)) from error
    epoch, number, recovered = (cells.get(key) for key in (_EPOCH, _NUMBER, _RECOVERED))
    if _EPOCH in cells and (type(epoch) is not bytes or len(epoch) != EPOCH_SIZE):
        raise Malformed("an epoch is 8 bytes")
    if _NUMBER in cells and (type(number) is not int or number < 0):
        raise Malformed("a number is unsigned")
    if _RECOVERED in cells and type(recovered) is not bool:
        raise Malformed("recovered is a boolean")
    return cells


class Publisher:
    """A topic that keeps its notes from `first` to `last`; it is empty if first is last + 1."""

    def __init__(self, epoch: bytes, first: int, last: int) -> None:
        self.epoch, self.first, self.last = epoch, first, last

    def subscribed(self, payload: bytes) -> dict[str, Any]:
        """The cells of the Result, and the numbers of the kept notes that follow."""
        cells = read(payload)
        if (_EPOCH in cells) != (_NUMBER in cells):
            raise Malformed("epoch and number go together")
        number, recovered = self.first - 1, False
        if cells.get(_EPOCH) == self.epoch and self.first - 1 <= cells[_NUMBER] <= self.last:
            number, recovered = cells[_NUMBER], True
        return {
            "topic_epoch": self.epoch,
            "number": number,
            "recovered": recovered,
            "follow": list(range(number + 1, self.last + 1)),
        }


class Reader:
    """A subscriber that had the notes up to `after`, an epoch and a number, or no notes."""

    def __init__(self, after: tuple[bytes, int] | None, result: bytes) -> None:
        cells = read(result)
        present = {key in cells for key in (_EPOCH, _NUMBER, _RECOVERED)}
        if len(present) > 1:
            raise Malformed("epoch, number and recovered go together")
        self.remembers = present == {True}
        self.taken: list[Any] = []
        self.gaps = 0
        if not self.remembers:
            return
        self.wire = begins = cells[_NUMBER]
        same = after is not None and after[0] == cells[_EPOCH]
        self.last = after[1] if after is not None and same else begins
        if begins > self.last:
            self.gaps += begins - self.last
            self.last = begins

    def take(self, subcategory: int, payload: bytes) -> None:
        """Process a Notify or Notes; a malformed one has no effect."""
        cells = read(payload)
        if cells.get(_NUMBER, 1) < 1:
            raise Malformed("numbers begin with 1")
        replaced = cells.get(_REPLACED, 0)
        if _REPLACED in cells and (type(replaced) is not int or replaced < 1):
            raise Malformed("replaced is at least 1")
        if replaced and replaced >= cells.get(_NUMBER, 0):
            raise Malformed("replaced is below the number")
        if subcategory == NOTES:
            notes = cells.get(_NOTES)
            if type(notes) is not list or len(notes) > MOST_NOTES:
                raise Malformed("no array of at most 4,096 notes")
        else:
            notes = [cells.get(_DATA)]
        if not self.remembers:
            self.taken += notes
            return
        before = cells[_NUMBER] - 1 if _NUMBER in cells else self.wire
        if before + len(notes) > GREATEST:
            raise Malformed("a number above 2^64-1")
        self.wire = before
        for note in notes:
            self.wire += 1
            if self.wire <= self.last:
                continue
            self.gaps += max(0, self.wire - self.last - 1 - replaced)
            self.last = self.wire
            self.taken.append(note)
