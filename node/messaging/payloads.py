"""Payloads of named events: a value in some format, raw bytes, or a tandem of two payloads.

A received payload stays encoded until a reader decodes it.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value
from parley._node.messaging.formats import NAMES, FormatError, FormatName, decode_as, encode_as
from parley._node.protocol.event_types import FORMAT_LBM

_LENGTH: Final = Struct(">Q")


class Tandem(NamedTuple):
    """Two payloads that are sent as one (appendix B).

    Encoded as u64 length || first || u64 length || second. If a payload includes a format ID,
    encode it with `formatted` and read it with `FormattedPayload`.

    Example:

        from parley import Tandem

        both = Tandem(b"header", b"body")
        assert Tandem.parse(both.encode()) == both
        await peer.emit("order", both)
    """

    first: bytes
    second: bytes

    def encode(self) -> bytes:
        """Encode both payloads.

        Raises:
            FormatError: one of them is not bytes.
        """
        given: tuple[Any, ...] = self  # Applications can pass values of any type.
        first, second = [_bytes(each) for each in given]
        return b"".join((_LENGTH.pack(len(first)), first, _LENGTH.pack(len(second)), second))

    @classmethod
    def parse(cls, data: bytes) -> "Tandem":
        """Decode bytes made by `encode`.

        Raises:
            FormatError: `data` is not exactly one tandem payload.
        """
        first, rest = _part(data)
        second, rest = _part(rest)
        if rest:
            raise FormatError(
                f"invalid tandem payload: {len(rest):,} bytes follow the second payload"
            )
        return cls(first, second)


def _part(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _LENGTH.size:
        raise FormatError(f"truncated tandem payload: its length field has {len(data)} of 8 bytes")
    (size,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + size
    if len(data) < end:
        has = len(data) - _LENGTH.size
        raise FormatError(f"truncated tandem payload: {has:,} of {size:,} bytes")
    return data[_LENGTH.size : end], data[end:]


class Payload:
    """A payload of a named event. `format` is its format ID, None for raw bytes.

    Example:

        @node.on("order")
        async def order(event):
            print(event.payload.data, event.payload.format)
    """

    __slots__ = ("_data", "_raw", "format")

    def __init__(self, raw: bytes | None, format_id: int | None, data: Any = None) -> None:
        """`raw` is the encoded payload; if it is None, `data` is the value to encode."""
        self._raw = raw
        self._data = data
        self.format = format_id

    @property
    def data(self) -> Value:
        """The decoded value; bytes if there is no format ID, or for bincode and postcard.

        Raises:
            FormatError: the bytes are not valid in their format, or the format is unknown.
        """
        if self._raw is None:
            data: Value = self._data
            return data
        return self._raw if self.format is None else decode_as(self.format, self._raw)

    @property
    def raw(self) -> bytes:
        """The encoded bytes, without the format ID.

        Raises:
            FormatError: the value cannot be encoded in the format.
        """
        if self._raw is None:
            self._raw = encode_as(self.format or 0, self._data)
        return self._raw

    @property
    def tandem(self) -> Tandem:
        """The two payloads of a tandem.

        Raises:
            FormatError: it isn't a tandem.
        """
        return Tandem.parse(self.raw)

    def cells(self) -> dict[int, Encodable]:
        """Return the cells of a native event: the value itself in LBM, otherwise bytes (section
        10).

        Raises:
            FormatError: the value cannot be encoded in the format.
        """
        if self.format is None:
            return {keys.DATA: self.raw}
        if self.format == FORMAT_LBM:
            return {
                keys.DATA: self._data if self._raw is None else self.data,
                keys.FORMAT: FORMAT_LBM,
            }
        return {keys.DATA: self.raw, keys.FORMAT: int(self.format)}


class FormattedPayload(Payload):
    r"""Bytes that may begin with a format ID.

    The event does not specify whether there is one: `data` uses the first byte as the format ID,
    `raw` and `tandem` use all bytes.

    Example:

        from parley import FormattedPayload

        assert FormattedPayload(b"\x03[1, 2]").data == [1, 2]
    """

    __slots__ = ()

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw, raw[0] if raw else None)

    @property
    def data(self) -> Value:
        """The value, decoded in the format of the first byte; None if there are no bytes.

        Raises:
            FormatError: the bytes are not valid in that format, or the format is unknown.
        """
        return decode_as(self.raw[0], self.raw[1:]) if self.raw else None

    def cells(self) -> dict[int, Encodable]:
        """Return the cells of a native event: the raw bytes, without a format."""
        return {keys.DATA: self.raw}


def formatted(value: Encodable, name: FormatName) -> bytes:
    """Encode a value with its format ID in front, as the byte-exact dialect does.

    Example:

        from parley import FormattedPayload, formatted

        assert FormattedPayload(formatted([1, 2], "json")).data == [1, 2]

    Raises:
        FormatError: the value cannot be encoded in the format.
    """
    if name == "raw":
        return _bytes(value)
    return bytes((NAMES[name],)) + encode_as(NAMES[name], value)


def make_payload(value: Encodable | Tandem | Payload, name: FormatName) -> Payload:
    """Make the payload of a value in a format; a Tandem or Payload keeps its own.

    Raises:
        FormatError: the format is unknown, or `raw` got something other than bytes.
    """
    if isinstance(value, Payload):
        return value
    if isinstance(value, Tandem):
        return Payload(value.encode(), None)
    if name == "raw":
        return Payload(_bytes(value), None)
    known: Any = name  # Checked below, because applications can pass other types.
    if not isinstance(known, str) or known not in NAMES:
        raise FormatError(f"unknown format {name!r}: expected {', '.join(NAMES)} or raw")
    return Payload(None, NAMES[name], value)


def read_cells(cells: Mapping[int, Any]) -> tuple[bytes | None, int | None, Value]:
    """Return the arguments of `Payload` for the cells of a native event."""
    if keys.DATA not in cells:
        return None, FORMAT_LBM, None
    data = cells[keys.DATA]
    format_id = cells.get(keys.FORMAT)
    return (None, FORMAT_LBM, data) if format_id == FORMAT_LBM else (data, format_id, None)


def _bytes(value: Encodable | Tandem) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise FormatError(f"cannot send a raw payload of type {type(value).__name__}: expected bytes")
