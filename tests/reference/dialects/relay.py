"""The event relay's messages, decoded as its document specifies.

Integers are in network byte order, and LEN includes both UUIDs and the payload. The caller reports
connected clients.
"""

from collections.abc import Container
from dataclasses import dataclass
from struct import pack
from typing import Final

from tests.reference.dialects.reading import INCOMPLETE, MALFORMED, Fields, Wrong

BROADCAST: Final = bytes(16)
SERVER: Final = b"\xff" * 16
UUIDS: Final = 32
CODES: Final = {
    1: "invalid UUID",
    2: "UUID already connected",
    3: "message too short or of an invalid format",
    4: "not authorised",
    5: "target UUID not connected",
    6: "internal server error",
}


@dataclass(frozen=True)
class RelayMessage:
    """A message, or an error frame if `sender` is SERVER."""

    to: bytes
    sender: bytes
    payload: bytes = b""

    @property
    def raw(self) -> bytes:
        """LEN, TO_UUID, FROM_UUID, PAYLOAD."""
        size = UUIDS + len(self.payload)
        return pack(">I", size) + self.to + self.sender + self.payload

    @property
    def error(self) -> tuple[int, str]:
        """(code, text) of an error frame; raises Wrong `malformed`."""
        fields = Fields(self.payload, MALFORMED)
        code = int.from_bytes(fields.take(4, "error code"))
        return code, fields.rest.decode(errors="replace")


def error(to: bytes, code: int, text: str = "") -> RelayMessage:
    """An error frame for the client `to`."""
    return RelayMessage(to, SERVER, pack(">I", code) + text.encode())


def read_uuid(data: bytes, connected: Container[bytes] = ()) -> tuple[bytes, bytes]:
    """The client's UUID and what follows it; raises Wrong as the relay answers."""
    fields = Fields(data, INCOMPLETE)
    uuid = fields.take(16, "UUID")
    if uuid in (BROADCAST, SERVER):
        raise Wrong("code 1, closes", "the nil and the all-ones UUID are nobody's")
    if uuid in connected:
        raise Wrong("code 2, closes", "connected already")
    return uuid, fields.rest


def read_message(data: bytes, limit: int) -> tuple[RelayMessage, bytes]:
    """Return the first message and the remaining bytes; `limit` is the largest LEN. Raises Wrong.

    A LEN below 32 is answered with code 3; the caller skips its LEN bytes.
    """
    fields = Fields(data, INCOMPLETE)
    size = int.from_bytes(fields.take(4, "LEN"))
    if size > limit:
        raise Wrong("code 3, closes", f"LEN is {size}, the limit {limit}")
    if size < UUIDS:
        raise Wrong("code 3", f"LEN is {size}, below both UUIDs")
    body = fields.take(size, "message")
    return RelayMessage(body[:16], body[16:32], body[32:]), fields.rest


def check_route(message: RelayMessage, uuid: bytes, connected: Container[bytes]) -> None:
    """What the relay checks in a message of the client `uuid`; raises Wrong."""
    if message.sender != uuid:
        raise Wrong("code 4, closes", "FROM_UUID is not the client's own")
    if message.to != BROADCAST and message.to not in connected:
        raise Wrong("code 5", "the target is not connected")
