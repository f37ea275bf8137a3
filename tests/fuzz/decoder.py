"""Target `decoder`: LBM payloads and values, typed reading, noise and padding (section 3).

What decodes encodes to the same bytes again, and the reference implementation
takes and refuses the same. The input's first byte picks the limits, the rest is LBM.
"""

from collections.abc import Callable
from typing import Final

from parley._lbm.codec import Value, decode, decode_value, encode, encode_value
from parley._lbm.fields import (
    read_array,
    read_bool,
    read_bytes,
    read_map,
    read_text,
    read_text_map,
    read_uint,
)
from parley._lbm.limits import DEFAULT_LIMITS, HANDSHAKE_LIMITS, LbmLimits
from parley._lbm.padding import pad, parse_padding
from tests.fuzz.allowed import ALLOWED
from tests.reference import cbor
from tests.vectors.load import to_tree

MAX_SIZE: Final = 2048
LIMITS: Final = (
    DEFAULT_LIMITS,
    HANDSHAKE_LIMITS,
    LbmLimits(max_bytes=64),
    LbmLimits(max_items=6),
    LbmLimits(max_depth=3),
)
PADDINGS: Final = tuple(parse_padding(text) for text in ("padme", "bucket:1", "bucket:64"))
READERS: Final[tuple[Callable[[dict[int, Value], int], object], ...]] = (
    read_array,
    read_bool,
    read_bytes,
    read_map,
    read_text,
    read_text_map,
    read_uint,
)


def fuzz(data: bytes) -> None:
    """Decode by all ways there are."""
    limits, payload = LIMITS[data[0] % len(LIMITS)] if data else DEFAULT_LIMITS, data[1:]
    try:
        assert encode_value(decode_value(payload, limits), enclosing=0) == payload
    except ALLOWED["decoder"]:
        pass
    expected = _of_reference(payload, limits)
    try:
        cells = decode(payload, limits, keep_noise=True)
    except ALLOWED["decoder"]:
        assert expected is None, "the reference takes it"
        return
    assert expected is not None, "the reference refuses it"
    assert to_tree(cells) == to_tree(expected), "the reference reads something else"
    assert to_tree(cells) == to_tree(decode_value(payload, limits)), "a payload is a value"
    assert encode(cells) == payload, "a payload with two encodings"
    without_noise = decode(payload, limits)
    assert to_tree(without_noise) == to_tree({k: v for k, v in cells.items() if k})
    for padding in PADDINGS:
        padded = pad(payload, padding, MAX_SIZE)
        assert padded == payload or len(padded) == padding.round_up(len(padded)) <= MAX_SIZE
        assert to_tree(decode(padded)) == to_tree(without_noise), "padding changes the cells"
    _read(without_noise)


def _of_reference(payload: bytes, limits: LbmLimits) -> dict[int, Value] | None:
    try:
        return cbor.decode_payload(
            payload,
            max_bytes=limits.max_bytes,
            max_items=limits.max_items,
            max_depth=limits.max_depth,
            keep_noise=True,
        )
    except cbor.LbmError:
        return None


def _read(cells: dict[int, Value]) -> None:
    """Check that each cell has the type of at most one reader; maps without keys match two."""
    for key, value in cells.items():
        taken = 0
        for read in READERS:
            try:
                read(cells, key)
            except ALLOWED["decoder"]:
                continue
            taken += 1
        assert taken <= (2 if value == {} else 1)
