"""Padding: a field of key 0 ("noise") that hides a payload's length (docs/protocol.md section 7).

The padded length is the smallest of the rule's sizes that padding can reach exactly. The field is
inserted into the encoded bytes.
"""

from dataclasses import dataclass
from typing import Final, Literal

from parley._lbm.codec import BYTES, MAP, encode_head
from parley._lbm.errors import LbmError

SMALLEST_PADDED: Final = 32
LARGEST_BUCKET: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Padding:
    """A padding rule; `str()` returns its text."""

    rule: Literal["off", "padme", "bucket"]
    bucket: int = 0

    def __str__(self) -> str:
        return f"bucket:{self.bucket}" if self.rule == "bucket" else self.rule

    def round_up(self, length: int) -> int:
        """Return the smallest of the rule's sizes that is at least `length` (>= 2)."""
        if self.rule == "bucket":
            return -(-length // self.bucket) * self.bucket
        if self.rule == "padme":
            # Padmé: clears as many low bits as a float's mantissa of the length would lose.
            exponent = length.bit_length() - 1
            mask = (1 << (exponent - exponent.bit_length())) - 1
            return (length + mask) & ~mask
        return length


NO_PADDING: Final = Padding("off")
PADME: Final = Padding("padme")


def parse_padding(text: str) -> Padding:
    """Parse `off`, `padme` or `bucket:N` (N is 1..64 Mi, decimal); raises LbmError."""
    if text == "off":
        return NO_PADDING
    if text == "padme":
        return PADME
    name, _, digits = text.partition(":")
    if name == "bucket" and digits.isascii() and digits.isdigit() and len(digits) <= 8:
        size = int(digits)
        if 1 <= size <= LARGEST_BUCKET:
            return Padding("bucket", size)
    raise LbmError(
        f"invalid padding {ascii(text)[:40]}: expected 'off', 'padme' or "
        f"'bucket:N' with N in 1..{LARGEST_BUCKET}"
    )


def pad(payload: bytes, padding: Padding, limit: int) -> bytes:
    """Add a noise field of zero bytes to an encoded payload, up to `limit` bytes in total.

    Returns the payload unchanged if it already has a padded length or padding, if the padded length
    exceeds the limit, or if it isn't a map.
    """
    if padding.rule == "off" or not payload or payload[0] >> 5 != MAP:
        return payload
    count, body = _read_map_head(payload)
    if payload[body : body + 1] == b"\x00":
        return payload
    length = len(payload)
    target = padding.round_up(max(length, SMALLEST_PADDED))
    if target == length:
        return payload
    head = encode_head(MAP, count + 1)
    unpadded = length - body + len(head)
    while (size := _noise_size(target - unpadded)) is None:
        target = padding.round_up(target + 1)
    if target > limit:
        return payload
    return b"".join((head, b"\x00", encode_head(BYTES, size), bytes(size), payload[body:]))


def _read_map_head(payload: bytes) -> tuple[int, int]:
    info = payload[0] & 31
    if info < 24:
        return info, 1
    body = 1 + (1 << (info - 24))
    return int.from_bytes(payload[1:body], "big"), body


def _noise_size(room: int) -> int | None:
    """Return how many zero bytes make a noise field of `room` bytes, or None. One or two sizes
    can't be reached, because the head of the byte string grows.
    """
    for head_size, end in ((1, 24), (2, 0x100), (3, 0x10000), (5, 0x100000000)):
        size = room - 1 - head_size
        if size < 0:
            return None
        if size < end:
            return size if len(encode_head(BYTES, size)) == head_size else None
    return None
