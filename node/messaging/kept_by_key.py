"""The newest note of each key that a topic remembers (section 18).

A note replaces the note before it that has the same key. Notes keep their numbers, so numbers of
replaced notes are missing. Beyond the bounds the key whose note is the oldest is forgotten.
"""

from bisect import bisect_left
from typing import Final

from parley._node.messaging.batch import Batch
from parley._node.messaging.kept import Kept
from parley._node.messaging.notes import Headers
from parley._node.protocol.limits import EVENT_COST, NOTES_COUNT

# What each note costs in addition to its encoding, its headers, its key and 64 bytes: the tables.
KEY_COST: Final = 192
# Places of replaced notes before the lists are made shorter.
SLACK: Final = 1_024


class KeptByKey(Kept):
    """The newest note of each key: at most `most` keys, and `most_bytes` of cost.

    Every note from the number `first` on is kept, or was replaced by a later note of its key.
    """

    __slots__ = ("_by_key", "_keys", "numbers")

    def __init__(self, epoch: bytes, most: int, most_bytes: int, last: int = 0) -> None:
        super().__init__(epoch, most, most_bytes, last)
        # Ascending numbers, with the note and the key of each. A replaced note is b"".
        self.numbers: list[int] = []
        self._keys: list[bytes] = []
        self._by_key: dict[bytes, int] = {}  # the number of each key's note

    def __len__(self) -> int:
        """Return how many notes are kept: one for each key."""
        return len(self._by_key)

    def add(self, note: bytes, headers: Headers | None, key: bytes = b"") -> None:
        """Add an encoded note in place of the note of the same key; the oldest make room."""
        replaced = self._by_key.pop(key, None)
        if replaced is not None:
            self._remove(bisect_left(self.numbers, replaced))
        self.last += 1
        self.numbers.append(self.last)
        self.notes.append(note)
        self._keys.append(key)
        self._by_key[key] = self.last
        self.cost += len(note) + len(key) + EVENT_COST + KEY_COST
        if headers is not None:
            self._headers[self.last] = headers
            self.cost += headers.size
        while self.cost > self.most_bytes or len(self) > self.most:
            self._forget_oldest()
        if len(self.notes) > 2 * len(self) + SLACK:
            self._shorten()

    def read(self, number: int, until: int, room: int) -> Batch:
        """Return the notes from `number` on, which is kept, that fit into one event: those with
        consecutive numbers, up to `until`, and `room` bytes; one with headers is alone."""
        at = bisect_left(self.numbers, number)
        headers = self._headers.get(number)
        if headers is not None:
            return Batch([self.notes[at]], headers)
        notes, size = [self.notes[at]], len(self.notes[at])
        for place in range(at + 1, min(at + NOTES_COUNT, len(self.numbers))):
            number += 1
            note = self.notes[place]
            size += len(note)
            if not note or number > until or self.numbers[place] != number:
                break
            if size > room or number in self._headers:
                break
            notes.append(note)
        return Batch(notes)

    def too_long(self, number: int, until: int, room: int) -> int:
        """Return 1 if the note `number`, which is kept, takes more than `room` bytes with its
        headers, else 0."""
        size = len(self.notes[bisect_left(self.numbers, number)])
        headers = self._headers.get(number)
        return int(size + (headers.size if headers else 0) > room)

    def replaced(self, number: int, until: int) -> int:
        """Return how many notes in a row, from `number` on up to `until`, were replaced."""
        for place in range(bisect_left(self.numbers, number), len(self.numbers)):
            if self.notes[place]:
                return min(self.numbers[place], until + 1) - number
        return until + 1 - number

    def count(self, number: int, until: int) -> int:
        """Return how many notes are kept of those from `number` on up to `until`."""
        numbers = self.numbers
        start, end = bisect_left(numbers, number), bisect_left(numbers, until + 1)
        return sum(1 for note in self.notes[start:end] if note)

    def _forget_oldest(self) -> None:
        place = self._start
        while not self.notes[place]:
            place += 1
        del self._by_key[self._keys[place]]
        self.first = self.numbers[place] + 1
        self._remove(place)
        self._start = place + 1

    def _remove(self, place: int) -> None:
        self.cost -= len(self.notes[place]) + len(self._keys[place]) + EVENT_COST + KEY_COST
        self.notes[place] = self._keys[place] = b""
        headers = self._headers.pop(self.numbers[place], None)
        if headers is not None:
            self.cost -= headers.size

    def _shorten(self) -> None:
        """Drop the places of replaced and forgotten notes."""
        places = [place for place, note in enumerate(self.notes) if note]
        self.numbers = [self.numbers[place] for place in places]
        self._keys = [self._keys[place] for place in places]
        self.notes = [self.notes[place] for place in places]
        self._start = 0
