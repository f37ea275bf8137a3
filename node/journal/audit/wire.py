"""An event of a journal, split into its parts (protocol.md, section 6). Only sizes are checked."""

from typing import Final

HEAD: Final = 21  # stream, form and prefix, in sealing `chain`
PREFIX: Final = 16
LEAST_BLOB: Final = 21  # async id, type, one byte of payload, tag


class WireEvent:
    """One event as it is in the journal; with sealing `each` it has no `prefix`."""

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
        """Split an event; raises ValueError if it is too short for its form."""
        self.head = head  # the first columns of its row
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
            raise ValueError(f"an event of {size:,} bytes has form {self.form} or is too short")
        self.blob = wire[start:]

    @property
    def segment(self) -> str:
        """The segment of the event."""
        return self.head[1]

    @property
    def mark(self) -> bytes:
        """16 bytes that are unique among the events of the direction."""
        return self.prefix or (self.seal or b"")[:PREFIX]
