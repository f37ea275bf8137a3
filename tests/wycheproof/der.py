"""Decode a signature's two integers from strict DER, for the vectors in this form.

Input that is not DER to the last bit (X.690, sections 8.3 and 10.1) gives None. The product doesn't
read DER: this converts vectors, only in tests.
"""

_SEQUENCE = 0x30
_INTEGER = 0x02


def integers(encoded: bytes) -> tuple[int, int] | None:
    """Return r and s of SEQUENCE { r INTEGER, s INTEGER }, or None if it is not just that."""
    outer = _element(encoded, _SEQUENCE)
    if outer is None or outer[1]:
        return None
    first = _element(outer[0], _INTEGER)
    if first is None:
        return None
    second = _element(first[1], _INTEGER)
    if second is None or second[1]:
        return None
    r, s = _integer(first[0]), _integer(second[0])
    return None if r is None or s is None else (r, s)


def _element(data: bytes, tag: int) -> tuple[bytes, bytes] | None:
    """Return the content of the element at the start, and what follows it."""
    # A P-256 signature has at most 72 bytes, so that no length needs the long form.
    if len(data) < 2 or data[0] != tag or data[1] > 0x7F or len(data) < 2 + data[1]:
        return None
    end = 2 + data[1]
    return data[2:end], data[end:]


def _integer(content: bytes) -> int | None:
    shortest = len(content) == 1 or (
        # The first nine bits are not all alike.
        len(content) > 1 and (content[0], content[1] >> 7) not in ((0x00, 0), (0xFF, 1))
    )
    return int.from_bytes(content, "big", signed=True) if shortest else None
