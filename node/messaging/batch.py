"""Notes that travel together: encoded each on its own, as one payload for all subscribers.

A payload is made at most once, and only if somebody is sent it; so is what the
notes are in another dialect.
"""

from collections.abc import Callable, Sequence

from parley._lbm.codec import Encodable
from parley._node.messaging.notes import (
    Headers,
    notes_payload,
    notify_payload,
    numbered_payload,
    read_headers,
)
from parley._node.protocol.codes import NOTIFY
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import BATCH_WEIGHT, NOTE_WEIGHT


class Batch:
    """Notes that follow each other, encoded; one alone may have headers.

    `size` is the bytes of all notes and headers, `cost` what they count in a subscriber's
    buffer: 64 more for each note; `weight` what they take in memory, also as a payload.
    `missing` is how many numbers there are between the note before and the first of these, and
    `replaced` for how many of them, the last ones, the subscriber gets a later note of that key.
    """

    __slots__ = (
        "_forms",
        "_payload",
        "cost",
        "headers",
        "missing",
        "notes",
        "replaced",
        "size",
        "weight",
    )

    def __init__(
        self,
        notes: list[bytes],
        headers: Headers | None = None,
        missing: int = 0,
        replaced: int = 0,
    ) -> None:
        self.notes = notes
        self.headers = headers
        self.missing = missing
        self.replaced = replaced
        self.size = sum(map(len, notes)) + (headers.size if headers else 0)
        self.cost = self.size + EVENT_COST * len(notes)
        self.weight = BATCH_WEIGHT + 2 * self.size + NOTE_WEIGHT * len(notes)
        self._payload: tuple[int, bytes] | None = None
        self._forms: dict[str, Sequence[bytes | None]] = {}

    def payload(self) -> tuple[int, bytes]:
        """Subcategory and payload, made once for all subscribers."""
        if self._payload is None:
            if self.headers:
                self._payload = NOTIFY, notify_payload(self.notes[0], self.headers.values)
            else:
                self._payload = notes_payload(self.notes)
        return self._payload

    def in_form(
        self, form: str, convert: Callable[[bytes], bytes | None]
    ) -> Sequence[bytes | None]:
        """Each note as `convert` makes it of its encoding, None if it has no such form; made
        once for all subscribers of this `form`."""
        found = self._forms.get(form)
        if found is None:
            found = self._forms[form] = [convert(note) for note in self.notes]
        return found

    def with_header(self, name: str, value: Encodable) -> "Batch":
        """The same note with a header more."""
        values = self.headers.values if self.headers else {}
        return Batch(self.notes, read_headers({**values, name: value}))

    def with_number(self, number: int, replaced: int = 0) -> "Batch":
        """Return the same notes with the number of the first of them, and how many notes directly
        before it were replaced."""
        batch = Batch(self.notes, self.headers)
        subcategory, payload = self.payload()
        batch._payload = subcategory, numbered_payload(payload, number, replaced)
        return batch

    def split(self, count: int) -> tuple["Batch", "Batch"]:
        """The first `count` notes and the others."""
        return Batch(self.notes[:count], self.headers), Batch(self.notes[count:])
