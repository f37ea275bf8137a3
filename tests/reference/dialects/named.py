"""Named events as the crate bromine speaks them, in both flavours, read from the document.

Big-endian; the header is read inside header_length and nowhere else. `typed`
is the flavour with one more byte after the id. It knows no handlers and no waiters.
"""

from dataclasses import dataclass
from struct import pack, unpack
from typing import Final

from tests.reference.dialects.reading import (
    CLOSES,
    INCOMPLETE,
    LOCAL,
    MALFORMED,
    Fields,
    Wrong,
    text,
)

VERSION: Final = bytes((0, 9, 0))
KINDS: Final = ("initiator", "response", "end", "error")
FORMATS: Final = {0: "messagepack", 1: "bincode", 2: "postcard", 3: "json", 16: "lbm", 17: "cbor"}


@dataclass(frozen=True)
class NamedEvent:
    """One event; `kind` is None in the flavour without types."""

    id: int
    name: str
    data: bytes = b""
    ref_id: int | None = None
    namespace: str = ""
    kind: str | None = None

    @property
    def header(self) -> bytes:
        """The fields from format_version to name. Raises Wrong `local`."""
        kind = b"" if self.kind is None else bytes([KINDS.index(self.kind)])
        ref = b"\x00" if self.ref_id is None else b"\xff" + pack(">Q", self.ref_id)
        texts = b""
        for part in (self.namespace.encode(), self.name.encode()):
            if len(part) > 0xFFFF:
                raise Wrong(LOCAL, "a name or namespace has at most 65,535 bytes")
            texts += pack(">H", len(part)) + part
        header = VERSION + pack(">Q", self.id) + kind + ref + texts
        if len(header) > 0xFFFF:
            raise Wrong(LOCAL, "a header has at most 65,535 bytes")
        return header

    @property
    def raw(self) -> bytes:
        """The encoded event: ten bytes more than total_length."""
        header = self.header
        return pack(">QH", len(header) + len(self.data), len(header)) + header + self.data


def read_event(data: bytes, limit: int, *, typed: bool) -> tuple[NamedEvent, bytes]:
    """The first event and what follows it; `limit` is the greatest total_length.

    Raises Wrong: `closes`, or `incomplete`.
    """
    fields = Fields(data, INCOMPLETE)
    total = int.from_bytes(fields.take(8, "total_length"))
    if total > limit:
        raise Wrong(CLOSES, f"an event of {total} bytes, the limit is {limit}")
    size = int.from_bytes(fields.take(2, "header_length"))
    if size > total:
        raise Wrong(CLOSES, f"a header of {size} bytes in an event of {total}")
    header = Fields(fields.take(size, "header"), CLOSES)
    if header.take(3, "format_version")[0] != VERSION[0]:
        raise Wrong(CLOSES, "another version")
    (ident,) = unpack(">Q", header.take(8, "id"))
    kind = header.take(1, "type")[0] if typed else None
    if kind is not None and kind >= len(KINDS):
        raise Wrong(CLOSES, f"no type of event: {kind}")
    exists = header.take(1, "ref_id_exists")[0]
    if exists not in (0x00, 0xFF):
        raise Wrong(CLOSES, f"ref_id_exists is {exists:#x}")
    ref_id = unpack(">Q", header.take(8, "ref_id"))[0] if exists else None
    namespace, name = (
        text(header.take(int.from_bytes(header.take(2, "length")), what), CLOSES, what)
        for what in ("namespace", "name")
    )
    payload = fields.take(total - size, "data")
    known = None if kind is None else KINDS[kind]
    return NamedEvent(ident, name, payload, ref_id, namespace, known), fields.rest


def tandem(first: bytes, second: bytes) -> bytes:
    """Two payloads in one."""
    return b"".join(pack(">Q", len(part)) + part for part in (first, second))


def read_tandem(data: bytes) -> tuple[bytes, bytes]:
    """Both payloads; raises Wrong `malformed`. What follows them is ignored."""
    fields = Fields(data, MALFORMED)
    first, second = (
        fields.take(int.from_bytes(fields.take(8, "length")), "payload") for _ in range(2)
    )
    return first, second


def read_formatted(data: bytes) -> tuple[str, bytes]:
    """(format, payload) of a payload with a format id; raises Wrong `malformed`."""
    if not data or data[0] not in FORMATS:
        raise Wrong(MALFORMED, "no format id, or an unknown one")
    return FORMATS[data[0]], data[1:]


def error_payload(code: int, message: str) -> bytes:
    """The data of an event named `error`."""
    return pack(">HI", code, len(message.encode())) + message.encode()


def read_error_payload(data: bytes) -> tuple[int, str]:
    """(code, text); raises Wrong `malformed`. What follows the text is ignored."""
    fields = Fields(data, MALFORMED)
    code, size = unpack(">HI", fields.take(6, "code and length"))
    return code, text(fields.take(size, "text"), MALFORMED, "text")
