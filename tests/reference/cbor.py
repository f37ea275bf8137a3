"""LBM payloads (section 3): a small deterministic CBOR encoder and a strict decoder.

A decoded payload encodes to the same bytes. The module doesn't interpret cells; only
`decode_payload` drops key 0 (noise).
"""

import struct
from typing import Any, Final

DEFAULT_ITEMS: Final = 131_072
# Arrays and maps that hold something: so many, and one for each so many bytes of the payload.
LEAST_CONTAINERS: Final = 8_192
BYTES_OF_CONTAINER: Final = 16
HANDSHAKE_ITEMS: Final = 256
DEFAULT_DEPTH: Final = 16
NAN: Final = bytes.fromhex("7ff8000000000000")


class LbmError(Exception):
    """The bytes are not an LBM payload; `rule` names the rule that they break."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def encode_payload(cells: dict[int, Any]) -> bytes:
    """The payload's own map; its keys are cell numbers. None is a value (null)."""
    if any(isinstance(key, bool) or not isinstance(key, int) for key in cells):
        raise LbmError("payload-keys")
    return encode_value(cells)


def encode_value(value: Any) -> bytes:
    """One value in the deterministic encoding; raises LbmError for what LBM cannot hold."""
    match value:
        case None:
            return b"\xf6"
        case bool():
            return b"\xf5" if value else b"\xf4"
        case int():
            if not -(2**64) <= value < 2**64:
                raise LbmError("integer-range")
            return head(0, value) if value >= 0 else head(1, -1 - value)
        case float():
            return b"\xfb" + (NAN if value != value else struct.pack(">d", value))
        case bytes():
            return head(2, len(value)) + value
        case str():
            text = value.encode()
            return head(3, len(text)) + text
        case list() | tuple():
            return head(4, len(value)) + b"".join(encode_value(item) for item in value)
        case dict():
            return _encode_map(value)
        case _:
            raise LbmError("type")


def _encode_map(value: dict[Any, Any]) -> bytes:
    unsigned = all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in value)
    if not unsigned and not all(isinstance(k, str) for k in value):
        raise LbmError("map-keys")
    entries = sorted((encode_value(key), encode_value(item)) for key, item in value.items())
    return head(5, len(entries)) + b"".join(key + item for key, item in entries)


def head(major: int, argument: int) -> bytes:
    """Major type and argument in the shortest form (RFC 8949, section 3)."""
    if argument < 24:
        return bytes([major << 5 | argument])
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << 8 * size:
            return bytes([major << 5 | info]) + argument.to_bytes(size)
    raise LbmError("integer-range")


def decode_payload(
    data: bytes,
    *,
    max_bytes: int | None = None,
    max_items: int = DEFAULT_ITEMS,
    max_depth: int = DEFAULT_DEPTH,
    keep_noise: bool = False,
) -> dict[int, Any]:
    """Return the cells of a payload without its noise. Raises only LbmError."""
    if max_bytes is not None and len(data) > max_bytes:
        raise LbmError("bytes")
    reader = _Reader(data, max_items, max_depth)
    if not data or data[0] >> 5 != 5:
        raise LbmError("not-a-map")
    cells = reader.value(depth=1)
    if reader.at != len(data):
        raise LbmError("trailing")
    if any(isinstance(key, str) for key in cells):
        raise LbmError("payload-keys")
    if not isinstance(cells.get(0, b""), bytes):
        raise LbmError("noise-type")
    return {key: value for key, value in cells.items() if key or keep_noise}


class _Reader:
    def __init__(self, data: bytes, max_items: int, max_depth: int) -> None:
        self.data = data
        self.at = 0
        self.items_left = max_items
        # Besides the payload's own map.
        self.containers_left = LEAST_CONTAINERS + len(data) // BYTES_OF_CONTAINER
        self.max_depth = max_depth

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise LbmError("truncated")
        self.at += count
        return self.data[self.at - count : self.at]

    def value(self, depth: int) -> Any:
        """`depth` is the depth that a map or an array beginning here has."""
        self.items_left -= 1
        if self.items_left < 0:
            raise LbmError("items")
        major, info = divmod(self.take(1)[0], 32)
        if major == 7:
            return self._simple(info)
        if major == 6:
            raise LbmError("tag")
        argument = self._argument(info)
        if major == 0:
            return argument
        if major == 1:
            return -1 - argument
        if major == 2:
            return self.take(argument)
        if major == 3:
            try:
                return self.take(argument).decode()
            except UnicodeDecodeError as error:
                raise LbmError("utf-8") from error
        if depth > self.max_depth:
            raise LbmError("depth")
        # Every item takes a byte: a count beyond the rest can never be filled.
        if argument > len(self.data) - self.at:
            raise LbmError("truncated")
        if argument and depth > 1:
            self.containers_left -= 1
            if self.containers_left < 0:
                raise LbmError("containers")
        if major == 4:
            return [self.value(depth + 1) for _ in range(argument)]
        return self._map(argument, depth)

    def _argument(self, info: int) -> int:
        if info < 24:
            return info
        if info == 31:
            raise LbmError("indefinite")
        if info > 27:
            raise LbmError("reserved")
        size = 1 << info - 24
        argument = int.from_bytes(self.take(size))
        if argument < (24 if size == 1 else 1 << 4 * size):
            raise LbmError("not-shortest")
        return argument

    def _simple(self, info: int) -> bool | float | None:
        if info == 27:
            raw = self.take(8)
            number: float = struct.unpack(">d", raw)[0]
            if number != number and raw != NAN:
                raise LbmError("nan")
            return number
        if info in (25, 26):
            raise LbmError("float-width")
        if info == 31:
            raise LbmError("indefinite")
        if info not in (20, 21, 22):
            raise LbmError("simple")
        return {20: False, 21: True}.get(info)

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        last = b""
        kind: int | None = None
        for _ in range(count):
            start = self.at
            major = self.data[start] >> 5 if start < len(self.data) else 0
            if major not in (0, 3) or (kind is not None and major != kind):
                raise LbmError("map-keys")
            kind = major
            key = self.value(depth + 1)
            encoded = self.data[start : self.at]
            if encoded == last:
                raise LbmError("duplicate")
            if encoded < last:
                raise LbmError("unordered")
            last = encoded
            result[key] = self.value(depth + 1)
        return result
