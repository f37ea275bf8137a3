"""An event of a journal taken apart, as section 6 lays it out.

One rule: only sizes are judged here; what the bytes are worth is `track`'s to find.
"""

from typing import Final

HEAD: Final = 21  # stream, form and prefix, in sealing `chain`
PREFIX: Final = 16
LEAST_BLOB: Final = 21  # async id, type, one byte of payload, tag


class WireEvent:
    """One event as it stands in the journal, taken apart; `prefix` is empty in `each`."""

    __slots__ = (
        "blob",
        "damaged",
        "form",
        "head",
        "offset",
        "prefix",
        "seal",
        "size",
        "stream4",
        "time",
    )

    def __init__(
        self,
        head: tuple[str, ...],
        offset: int,
        time: int,
        wire: bytes,
        each: bool,
        seal_size: int,
    ) -> None:
        """Raises ValueError if it is too short for its form."""
        self.head = head  # what its row begins with
        self.damaged = False  # its record's CRC is wrong
        self.offset = offset
        self.time = time
        self.size = size = len(wire)
        self.stream4 = wire[:4]
        self.prefix = b""
        self.seal: bytes | None = None
        self.form = 1
        start = 4
        if not each:
            self.form = wire[4] if size > 4 else 2
            self.prefix = wire[5:HEAD]
            start = HEAD
        if self.form == 1:
            self.seal = wire[start : start + seal_size]
            start += seal_size
        if self.form > 1 or size < start + LEAST_BLOB:
            raise ValueError("too short for its form, or of no form")
        self.blob = wire[start:]

    @property
    def segment(self) -> str:
        """The segment that it is in."""
        return self.head[1]

    @property
    def mark(self) -> bytes:
        """16 bytes that no other event of the direction has."""
        return self.prefix or (self.seal or b"")[:PREFIX]
