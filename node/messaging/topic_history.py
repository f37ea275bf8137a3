"""The notes that a topic keeps for subscribers that reconnect (section 18)."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import ConfigError
from parley._node.messaging.notes import Batch, Headers
from parley._node.protocol.config_types import require_number
from parley._node.protocol.limits import EVENT_COST, NOTES_COUNT

# The default size of a history that is limited by the number of notes, in bytes of cost.
KEEP_BYTES: Final = 16 << 20
LEAST_KEEP_BYTES: Final = 1 << 10
# How many empty places the list of notes can have before it is shortened.
SLACK: Final = 1_024


class TopicPosition(NamedTuple):
    """A position in the notes of a topic that keeps a history.

    `number` is the number of the last note received, 0 for none. `epoch` is 8 bytes that change
    whenever the topic starts.

    Example:

        from parley import TopicPosition

        position = TopicPosition(epoch=bytes(8), number=12)
        async with peer.subscribe("news", after=position) as news:
            print(news.recovered)
    """

    epoch: bytes
    number: int


class Beginning(NamedTuple):
    """Where a subscription begins.

    `position` is the last note before the ones to be sent. `recovered` is whether these include
    every note after the subscriber's own position.
    """

    position: TopicPosition
    recovered: bool

    def cells(self) -> dict[int, Any]:
        """Return the cells for the Result."""
        epoch, number = self.position
        return {keys.TOPIC_EPOCH: epoch, keys.NUMBER: number, keys.RECOVERED: self.recovered}


def read_position(cells: Mapping[int, Any]) -> TopicPosition | None:
    """Read the position in a Subscribe; None if there is none.

    Raises:
        LbmDecodeError: it is incomplete.
    """
    epoch, number = cells.get(keys.TOPIC_EPOCH), cells.get(keys.NUMBER)
    if epoch is None and number is None:
        return None
    if epoch is None or number is None:
        alone = "an epoch" if number is None else f"number {number}"
        raise LbmDecodeError(
            f"incomplete position with only {alone}: expected an epoch and a number"
        )
    return TopicPosition(epoch, number)


def read_beginning(cells: Mapping[int, Any]) -> Beginning | None:
    """Read the beginning in the Result of a Subscribe; None if the topic keeps no history.

    Raises:
        LbmDecodeError: it is incomplete.
    """
    position, recovered = read_position(cells), cells.get(keys.RECOVERED)
    if position is None and recovered is None:
        return None
    if position is None or recovered is None:
        missing = "recovered" if recovered is None else "epoch and number"
        raise LbmDecodeError(
            f"incomplete beginning without {missing}: expected epoch, number and recovered"
        )
    return Beginning(position, recovered)


class TopicHistory:
    """The last notes of a topic: at most `most` notes and `most_bytes` of cost.

    The cost of a note is its encoded size, its headers and 64 bytes. `first` is the number of the
    oldest note in the history. `last` is that of the newest published note, 0 before the first. If
    `first` is larger than `last`, the history is empty. `cost` is the total cost.
    """

    __slots__ = (
        "_headers",
        "_start",
        "cost",
        "epoch",
        "first",
        "last",
        "most",
        "most_bytes",
        "notes",
    )

    def __init__(self, epoch: bytes, most: int, most_bytes: int, last: int = 0) -> None:
        self.epoch = epoch
        self.most = most
        self.most_bytes = most_bytes
        self.first = last + 1
        self.last = last
        self.cost = 0
        # A list, because subscribers read at any position; positions before `_start` are empty.
        self.notes: list[bytes] = []
        self._start = 0
        self._headers: dict[int, Headers] = {}  # By number; most notes have none.

    def __len__(self) -> int:
        """Return how many notes are in the history."""
        return self.last + 1 - self.first

    def add(self, note: bytes, headers: Headers | None, key: bytes = b"") -> None:
        """Add an encoded note and discard the oldest if necessary. Only `CompactedHistory` uses
        `key`.
        """
        self.notes.append(note)
        self.last += 1
        self.cost += len(note) + EVENT_COST
        if headers is not None:
            self._headers[self.last] = headers
            self.cost += headers.size
        while self.cost > self.most_bytes or self.last - self.first >= self.most:
            self.forget_oldest()

    def skip(self, count: int) -> None:
        """Skip the numbers of notes that never arrived.

        All notes before them are discarded, because the history must be consecutive.
        """
        while len(self):
            self.forget_oldest()
        self.last += count
        self.first = self.last + 1

    def read(self, number: int, until: int, room: int) -> Batch:
        """Return the notes from `number` to `until` that fit into one event of `room` bytes.

        A note with headers is returned alone. `number` must be in the history and at most `until`.
        """
        at = self._start + number - self.first
        end = at + min(until + 1 - number, NOTES_COUNT)
        headers = self._headers.get(number)
        if headers is not None:
            return Batch([self.notes[at]], headers)
        notes, size = self.notes[at:end], 0
        for count, note in enumerate(notes):
            size += len(note)
            if count and (size > room or number + count in self._headers):
                return Batch(notes[:count])
        return Batch(notes)

    def too_long(self, number: int, until: int, room: int) -> int:
        """Count the notes from `number` to `until`, headers included, that exceed `room` bytes.

        Stops at the first note that fits. `number` must be in the history.
        """
        headers, at = self._headers, self._start - self.first
        for one in range(number, until + 1):
            size = len(self.notes[at + one])
            if size <= room and (one not in headers or size + headers[one].size <= room):
                return one - number
        return until + 1 - number

    def replaced(self, number: int, until: int) -> int:
        """Return how many consecutive notes from `number` to `until` were replaced."""
        return 0

    def count(self, number: int, until: int) -> int:
        """Return how many notes from `number` to `until` are in the history."""
        return max(0, until + 1 - max(number, self.first))

    def begin(self, after: TopicPosition | None) -> Beginning:
        """Return where a subscriber begins that has the notes up to `after`."""
        if after is not None and after.epoch == self.epoch and self._follows(after.number):
            return Beginning(after, True)
        return Beginning(TopicPosition(self.epoch, self.first - 1), False)

    def _follows(self, number: int) -> bool:
        """Whether all notes after this one are in the history."""
        return self.first - 1 <= number <= self.last

    def forget_oldest(self) -> None:
        self.cost -= len(self.notes[self._start]) + EVENT_COST
        self.notes[self._start] = b""
        headers = self._headers.pop(self.first, None) if self._headers else None
        if headers is not None:
            self.cost -= headers.size
        self._start += 1
        self.first += 1
        if self._start >= SLACK and self._start * 2 >= len(self.notes):
            del self.notes[: self._start]
            self._start = 0


def create_history(
    epoch: bytes,
    keep: int | None,
    keep_bytes: int | None,
    kind: type[TopicHistory] | None = None,
) -> TopicHistory | None:
    """Create an empty history (`kind` is a subclass) with limits in notes and in bytes of cost.

    Returns None if no option is given.

    Raises:
        ConfigError: an option is out of its range.
    """
    if keep is None and keep_bytes is None and kind is None:
        return None
    if keep is not None:
        require_number("keep", keep, 1, whole=True, error=ConfigError)
    if keep_bytes is None:
        keep_bytes = KEEP_BYTES
    else:
        require_number("keep_bytes", keep_bytes, LEAST_KEEP_BYTES, whole=True, error=ConfigError)
    most = keep_bytes // EVENT_COST
    return (kind or TopicHistory)(epoch, min(keep or most, most), keep_bytes)


# The cost of a note for the tables, in addition to its encoding, headers, key and 64 bytes.
KEY_COST: Final = 192


class CompactedHistory(TopicHistory):
    """The newest note of each key: at most `most` keys and `most_bytes` of cost.

    Each note from the number `first` on is in the history, or was replaced by a newer note of its
    key.
    """

    __slots__ = ("_by_key", "_keys", "numbers")

    def __init__(self, epoch: bytes, most: int, most_bytes: int, last: int = 0) -> None:
        super().__init__(epoch, most, most_bytes, last)
        # Numbers in ascending order, with the note and the key of each. A replaced note is b"".
        self.numbers: list[int] = []
        self._keys: list[bytes] = []
        self._by_key: dict[bytes, int] = {}  # the number of each key's note

    def __len__(self) -> int:
        """Return how many notes are in the history, one for each key."""
        return len(self._by_key)

    def add(self, note: bytes, headers: Headers | None, key: bytes = b"") -> None:
        """Add an encoded note in place of the note of the same key; discard the oldest if
        necessary.
        """
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
        """Return consecutive notes from `number` to `until` that fit into one event of `room`
        bytes.

        A note with headers is returned alone. `number` must be in the history.
        """
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
        """Return 1 if the note `number` with its headers exceeds `room` bytes, else 0."""
        size = len(self.notes[bisect_left(self.numbers, number)])
        headers = self._headers.get(number)
        return int(size + (headers.size if headers else 0) > room)

    def replaced(self, number: int, until: int) -> int:
        """Return how many consecutive notes from `number` to `until` were replaced."""
        for place in range(bisect_left(self.numbers, number), len(self.numbers)):
            if self.notes[place]:
                return min(self.numbers[place], until + 1) - number
        return until + 1 - number

    def count(self, number: int, until: int) -> int:
        """Return how many notes from `number` to `until` are in the history."""
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
        """Remove the positions of replaced and discarded notes."""
        places = [place for place, note in enumerate(self.notes) if note]
        self.numbers = [self.numbers[place] for place in places]
        self._keys = [self._keys[place] for place in places]
        self.notes = [self.notes[place] for place in places]
        self._start = 0
