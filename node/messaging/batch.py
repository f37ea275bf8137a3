"""Notes that travel together: encoded each on its own, as one payload for all subscribers.

One rule: a payload is made at most once, and only if somebody is sent it. Knows no
subscribers.
"""

from collections.abc import Mapping

from lbm.codec import Encodable
from node.messaging.notes import notes_payload, notify_payload
from node.protocol.codes import NOTIFY
from node.protocol.limits import EVENT_COST


class Batch:
    """Notes that follow each other, encoded; one alone may have headers.

    `size` is the bytes of all notes, `cost` what they count in a subscriber's buffer.
    """

    __slots__ = ("_payload", "cost", "headers", "notes", "size")

    def __init__(self, notes: list[bytes], headers: Mapping[str, Encodable] | None = None) -> None:
        self.notes = notes
        self.headers = headers
        self.size = sum(map(len, notes))
        self.cost = self.size + EVENT_COST * len(notes)
        self._payload: tuple[int, bytes] | None = None

    def payload(self) -> tuple[int, bytes]:
        """Subcategory and payload, made once for all subscribers."""
        if self._payload is None:
            if self.headers:
                self._payload = NOTIFY, notify_payload(self.notes[0], self.headers)
            else:
                self._payload = notes_payload(self.notes)
        return self._payload

    def split(self, count: int) -> tuple["Batch", "Batch"]:
        """The first `count` notes and the others."""
        return Batch(self.notes[:count], self.headers), Batch(self.notes[count:])
