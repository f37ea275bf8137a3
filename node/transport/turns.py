"""What came over one connection and waits for its turn, so that no peer delays others.

One rule: bytes stay in their order, and no more than `size` of them are given at a time.
Knows no loop: when the next turn is, is the driver's to say.
"""

from typing import Final

WHOLE: Final = 1 << 62  # whatever came, at once


class Turns:
    """`due` says that a turn is on its way; `waiting` that bytes are kept for one."""

    __slots__ = ("_at", "_kept", "due", "size")

    def __init__(self) -> None:
        self.size = WHOLE
        self.due = False
        self._kept = b""
        self._at = 0

    @property
    def waiting(self) -> bool:
        """Whether bytes are kept."""
        return self._at < len(self._kept)

    def put(self, data: bytes) -> None:
        """Keep bytes, behind what is kept."""
        self._kept = self._kept[self._at :] + data if self.waiting else data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty for none."""
        at, self._at = self._at, min(self._at + size, len(self._kept))
        data = self._kept[at : self._at]
        if not self.waiting:
            self.clear()
        return data

    def clear(self) -> None:
        """Forget what is kept."""
        self._kept, self._at = b"", 0
