"""The notes of one SimProto subscription that came and were not read.

One rule: a note is acknowledged when there is room for it, so that a publisher that
counts its acknowledgements goes as fast as the reader; but not so late that the
connection would be taken as broken. Knows neither its topic nor its reader.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from node.protocol.limits import EVENT_COST

NEVER: Final = float("inf")


class NoteQueue:
    """What waits for one reader. Up to `window` bytes of cost (a note's data and 64) are
    acknowledged as they come, up to twice that and one note `patience` seconds later at
    most.

    `acknowledge` is called with a dialog, `on_note` when something came.
    """

    __slots__ = (
        "_acknowledge",
        "_held",
        "_held_size",
        "_on_note",
        "_patience",
        "_size",
        "_waiting",
        "_window",
        "closed",
    )

    def __init__(
        self,
        window: int,
        patience: float,
        acknowledge: Callable[[int], None],
        on_note: Callable[[], None],
    ) -> None:
        self._window = window
        self._patience = patience
        self._acknowledge = acknowledge
        self._on_note = on_note
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._held: deque[tuple[int, int, float]] = deque()  # dialog, cost, when it is due
        self._held_size = 0
        self.closed = False

    def __len__(self) -> int:
        """How many notes wait."""
        return len(self._waiting)

    @property
    def deadline(self) -> float:
        """When the next acknowledgement is due, whether there is room or not."""
        return self._held[0][2] if self._held else NEVER

    def put(self, data: bytes, dialog: int, now: float) -> bool:
        """A note came; False if there is no room for it at all."""
        cost, limit = len(data) + EVENT_COST, 2 * self._window
        # The first one to be held is, however long: its publisher could not know.
        if self._size > limit or (self._held and self._size + cost > limit):
            return False
        self._waiting.append(data)
        self._size += cost
        if self._size > self._window and len(self._waiting) > 1:
            self._held.append((dialog, cost, now + self._patience))
            self._held_size += cost
        else:
            self._acknowledge(dialog)
        self._on_note()
        return True

    def take(self) -> bytes:
        """The next note's data.

        Raises:
            IndexError: there is none.
        """
        data = self._waiting.popleft()
        self._size -= len(data) + EVENT_COST
        while self._held and (
            self._size - self._held_size + self._held[0][1] <= self._window
            or len(self._held) == len(self._waiting)  # the next one to be read
        ):
            self._release()
        return data

    def handle_deadline(self, now: float) -> None:
        """Acknowledge what can wait no longer."""
        while self._held and self._held[0][2] <= now:
            self._release()

    def close(self) -> None:
        """Nobody reads any more: forget what waits."""
        self.closed = True
        self._waiting.clear()
        self._size = 0
        while self._held:
            self._release()

    def _release(self) -> None:
        dialog, cost, _ = self._held.popleft()
        self._held_size -= cost
        self._acknowledge(dialog)
