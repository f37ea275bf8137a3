"""What a named event carries: a value in some format, bytes, or two payloads in tandem.

It stays as it came until somebody reads it, and who reads says as what. Knows
no events.
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
    """Two payloads that travel as one; each is read by itself (appendix B).

    On the wire: u64 length || first || u64 length || second. A payload with a format id
    is made by `formatted` and read by `FormattedPayload`.
    """

    first: bytes
    second: bytes

    def encode(self) -> bytes:
        """As bytes.

        Raises:
            FormatError: one of them is not bytes.
        """
        given: tuple[Any, ...] = self  # whatever was put there
        first, second = [_bytes(each) for each in given]
        return b"".join((_LENGTH.pack(len(first)), first, _LENGTH.pack(len(second)), second))

    @classmethod
    def parse(cls, data: bytes) -> "Tandem":
        """Read what `encode` makes.

        Raises:
            FormatError: it is not, as a whole, a tandem payload.
        """
        first, rest = _part(data)
        second, rest = _part(rest)
        if rest:
            raise FormatError(f"{len(rest):,} bytes follow the second payload")
        return cls(first, second)


def _part(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _LENGTH.size:
        raise FormatError(f"a tandem payload that is cut off: a length of {len(data)} bytes")
    (size,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + size
    if len(data) < end:
        has = len(data) - _LENGTH.size
        raise FormatError(f"a tandem payload that is cut off: {has:,} of {size:,} bytes")
    return data[_LENGTH.size : end], data[end:]


class Payload:
    """A payload of a named event. `format` is its format id, None for raw bytes."""

    __slots__ = ("_data", "_raw", "format")

    def __init__(self, raw: bytes | None, format_id: int | None, data: Any = None) -> None:
        """Either its bytes, or (with `raw` None) the value that they stand for."""
        self._raw = raw
        self._data = data
        self.format = format_id

    @property
    def data(self) -> Value:
        """The value; bytes if there is no format id, or its format says nothing of types
        (bincode, postcard).

        Raises:
            FormatError: it is not of the format that it says, or nobody here reads that.
        """
        if self._raw is None:
            data: Value = self._data
            return data
        return self._raw if self.format is None else decode_as(self.format, self._raw)

    @property
    def raw(self) -> bytes:
        """The bytes, without the format id.

        Raises:
            FormatError: a value that has no form in the format.
        """
        if self._raw is None:
            self._raw = encode_as(self.format or 0, self._data)
        return self._raw

    @property
    def tandem(self) -> Tandem:
        """The two payloads in it.

        Raises:
            FormatError: it is none of that kind.
        """
        return Tandem.parse(self.raw)

    def cells(self) -> dict[int, Encodable]:
        """The cells of a native event: the value itself in LBM, else bytes (section 10).

        Raises:
            FormatError: the value has no form in the format.
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
    """Bytes of which the first may be a format id: nothing else says so, so that `data`
    takes them for one, and `raw` and `tandem` take all of them."""

    __slots__ = ()

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw, raw[0] if raw else None)

    @property
    def data(self) -> Value:
        """The value in the format that the first byte says; None if there is no byte.

        Raises:
            FormatError: it is not of that format, or the format is unknown.
        """
        return decode_as(self.raw[0], self.raw[1:]) if self.raw else None

    def cells(self) -> dict[int, Encodable]:
        """The cells of a native event: raw bytes, since nothing says that they are more."""
        return {keys.DATA: self.raw}


def formatted(value: Encodable, name: FormatName) -> bytes:
    """A format id and the value in that format, as the byte-exact dialect has it.

    Raises:
        FormatError: it has no form there.
    """
    if name == "raw":
        return _bytes(value)
    return bytes((NAMES[name],)) + encode_as(NAMES[name], value)


def make_payload(value: Encodable | Tandem | Payload, name: FormatName) -> Payload:
    """The payload of a value in a format; a Tandem or Payload is taken as it is.

    Raises:
        FormatError: there is no such format, or bytes were wanted for a raw payload.
    """
    if isinstance(value, Payload):
        return value
    if isinstance(value, Tandem):
        return Payload(value.encode(), None)
    if name == "raw":
        return Payload(_bytes(value), None)
    known: Any = name  # text, in a program that is right
    if not isinstance(known, str) or known not in NAMES:
        raise FormatError(f"there is no format {name!r}: {', '.join(NAMES)} or raw")
    return Payload(None, NAMES[name], value)


def read_cells(cells: Mapping[int, Any]) -> tuple[bytes | None, int | None, Value]:
    """What the cells of a native event (as `event_types` reads them) say, as `Payload` takes it."""
    if keys.DATA not in cells:
        return None, FORMAT_LBM, None
    data = cells[keys.DATA]
    format_id = cells.get(keys.FORMAT)
    return (None, FORMAT_LBM, data) if format_id == FORMAT_LBM else (data, format_id, None)


def _bytes(value: Encodable | Tandem) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise FormatError(f"raw payloads are bytes, not {type(value).__name__}")
