"""Target `formats`: the payloads of named events in all formats, and their decoded values.

A decoded value is plain. It either has no form in a format, or survives encoding and decoding. The
input is a byte for the reader, and a payload.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from parley._lbm.codec import Value, encode
from parley._node.dialects.named.codec import decode_error, encode_error
from parley._node.dialects.values import RESTS, from_bytes, to_bytes
from parley._node.messaging.formats import Format, decode_as, encode_as
from parley._node.messaging.payloads import FormattedPayload, Payload, Tandem, formatted, read_cells
from parley._node.protocol.event_types import REPLY
from tests.fuzz.allowed import ALLOWED
from tests.reference.dialects import named
from tests.reference.dialects.reading import Wrong

MAX_SIZE: Final = 2048
SCALARS: Final = (int, float, str, bytes, bool, type(None))
NAMES: Final = ("lbm", "msgpack", "json", "cbor")
# Formats whose payloads don't contain types.
OPAQUE: Final = (Format.BINCODE, Format.POSTCARD)


def fuzz(data: bytes) -> None:
    """Read it as everything that it could be."""
    reader = READERS[data[0] % len(READERS)] if data else READERS[0]
    with suppress(*ALLOWED["formats"]):
        reader(data[1:])


def _of(format_id: int) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        value = decode_as(format_id, data)
        assert _is_plain(value)
        if format_id in OPAQUE:
            assert value == data
        else:
            assert not _is_read(format_id, data + b"\0"), "something may follow"
        assert _same(Payload(data, format_id).data, value)
        for other in Format:
            with suppress(*ALLOWED["formats"]):
                assert _same(decode_as(other, encode_as(other, value)), value)
        for name in NAMES:
            with suppress(*ALLOWED["formats"]):
                assert _same(FormattedPayload(formatted(value, name)).data, value)
        for rest in RESTS:
            with suppress(*ALLOWED["formats"]):
                assert from_bytes(to_bytes(value, rest)) != b""

    return read


def _is_read(format_id: int, data: bytes) -> bool:
    with suppress(*ALLOWED["formats"]):
        decode_as(format_id, data)
        return True
    return False


def _read_any(data: bytes) -> None:
    payload = FormattedPayload(data)
    assert payload.raw == data
    assert _is_plain(payload.data)


def _read_tandem(data: bytes) -> None:
    try:
        expected = named.read_tandem(data)
    except Wrong:
        expected = None
    tandem = Tandem.parse(data)
    assert tandem == expected
    assert tandem.encode() == data


def _read_error(data: bytes) -> None:
    try:
        expected = named.read_error_payload(data)
    except Wrong:
        expected = None
    found = decode_error(data)
    assert found == expected
    if found is not None:
        assert data.startswith(encode_error(*found))


def _read_cells(data: bytes) -> None:
    """What a native event carries is what would be sent on."""
    payload = Payload(*read_cells(REPLY.read(data)))
    cells = payload.cells()
    again = Payload(*read_cells(REPLY.read(encode(cells))))
    assert again.format == payload.format
    assert again.raw == payload.raw
    assert _same(again.data, payload.data)


READERS: Final[tuple[Callable[[bytes], None], ...]] = (
    *(_of(format_id) for format_id in Format),
    _of(4),  # Belongs to no format.
    _read_any,
    _read_tandem,
    _read_error,
    _read_cells,
)


def _is_plain(value: Value) -> bool:
    left: list[Any] = [value]
    while left:
        item = left.pop()
        if type(item) is dict:
            left += [*item.keys(), *item.values()]
        elif type(item) is list:
            left += item
        elif type(item) not in SCALARS:
            return False
    return True


def _same(one: Value, other: Value) -> bool:
    """Whether two values are the same, those that are no number too, however deep."""
    left: list[tuple[Any, Any]] = [(one, other)]
    while left:
        a, b = left.pop()
        if type(a) is not type(b):
            return False
        if type(a) is dict:
            left += zip(sorted(a, key=repr), sorted(b, key=repr), strict=True)
            left += zip(_in_order(a), _in_order(b), strict=True)
        elif type(a) is list:
            left += zip(a, b, strict=True)
        elif repr(a) != repr(b):
            return False
    return True


def _in_order(value: dict[Any, Any]) -> list[Any]:
    """The values by their keys' order."""
    return [value[key] for key in sorted(value, key=repr)]
