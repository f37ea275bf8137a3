"""Padding (section 7): the padded size of a payload, and the noise cell that reaches it.

The noise cell is the whole mechanism; the rest of the payload doesn't change.
"""

from tests.reference.cbor import decode_payload, encode_payload, head

SMALLEST = 32


def padme(size: int) -> int:
    """The Padmé size of `size` bytes: at most 12 % more (PURBs, section 4)."""
    exponent = size.bit_length() - 1
    last_bits = exponent - exponent.bit_length()
    mask = (1 << last_bits) - 1
    return size + mask & ~mask


def rule_size(rule: str, size: int) -> int:
    """The least size of the rule that is not below `size`."""
    if rule == "padme":
        return padme(size)
    bucket = int(rule.removeprefix("bucket:"))
    return -(-size // bucket) * bucket


def noise_for(size: int, count: int, target: int) -> int | None:
    """Length of the noise that lifts `size` bytes with `count` cells to `target`, if any does."""
    growth = len(head(5, count + 1)) - len(head(5, count))
    extra = target - size - growth - 1
    for prefix in (1, 2, 3, 5):
        length = extra - prefix
        if length >= 0 and len(head(2, length)) == prefix:
            return length
    return None


def padded(payload: bytes, rule: str, limit: int) -> bytes:
    """The payload with zero bytes of noise, or unchanged; noise of the input is dropped."""
    cells = decode_payload(payload)
    plain = encode_payload(cells)
    size = max(len(plain), SMALLEST)
    target = rule_size(rule, size)
    if target == len(plain):
        return plain
    while (length := noise_for(len(plain), len(cells), target)) is None:
        target = rule_size(rule, target + 1)
    return encode_payload({0: bytes(length), **cells}) if target <= limit else plain
