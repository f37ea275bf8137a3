"""Typed reading of decoded fields (docs/protocol.md section 3).

A payload is malformed if a field has the wrong type or range. Only an absent field gets the
default. A boolean is not an unsigned integer.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar

from parley._lbm.codec import Value
from parley._lbm.errors import LbmDecodeError
from parley._lbm.keys import key_name

MAX_UINT: Final = 2**64 - 1


class Required(Enum):
    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED

D = TypeVar("D")

_Cells = Mapping[int, Value]
_ABSENT: Final = object()


def read_uint(
    cells: _Cells,
    key: int,
    *,
    default: D | Required = REQUIRED,
    minimum: int = 0,
    maximum: int = MAX_UINT,
) -> int | D:
    """Read an integer of minimum..maximum; raises LbmDecodeError."""
    value = cells.get(key, _ABSENT)
    if type(value) is int:
        if minimum <= value <= maximum:
            return value
        raise LbmDecodeError(f"cell {key_name(key)} is not in {minimum}..{maximum}")
    return _otherwise(value, key, default, "an unsigned integer")


def read_bytes(
    cells: _Cells, key: int, *, default: D | Required = REQUIRED, size: int | None = None
) -> bytes | D:
    """Read a byte string, of exactly `size` bytes if given; raises LbmDecodeError."""
    value = cells.get(key, _ABSENT)
    if type(value) is bytes:
        if size is None or len(value) == size:
            return value
        raise LbmDecodeError(f"cell {key_name(key)} does not have {size} bytes")
    return _otherwise(value, key, default, "a byte string")


def read_text(cells: _Cells, key: int, *, default: D | Required = REQUIRED) -> str | D:
    """Read a text string; raises LbmDecodeError."""
    value = cells.get(key, _ABSENT)
    if type(value) is str:
        return value
    return _otherwise(value, key, default, "a text string")


def read_bool(cells: _Cells, key: int, *, default: D | Required = REQUIRED) -> bool | D:
    """Read a boolean; raises LbmDecodeError."""
    value = cells.get(key, _ABSENT)
    if type(value) is bool:
        return value
    return _otherwise(value, key, default, "a boolean")


def read_array(cells: _Cells, key: int, *, default: D | Required = REQUIRED) -> list[Any] | D:
    """Read an array, without checking its elements; raises LbmDecodeError."""
    value = cells.get(key, _ABSENT)
    if type(value) is list:
        return value
    return _otherwise(value, key, default, "an array")


def read_map(cells: _Cells, key: int, *, default: D | Required = REQUIRED) -> dict[int, Any] | D:
    """Read a map with unsigned keys, without checking its values; raises LbmDecodeError."""
    value = cells.get(key, _ABSENT)
    # All keys of a decoded map have the same type, so checking the first suffices.
    if type(value) is dict and type(next(iter(value), 0)) is int:
        return value
    return _otherwise(value, key, default, "a map with unsigned keys")


def read_text_map(
    cells: _Cells, key: int, *, default: D | Required = REQUIRED
) -> dict[str, Any] | D:
    """Read a map with text keys, without checking its values; raises LbmDecodeError."""
    value = cells.get(key, _ABSENT)
    if type(value) is dict and type(next(iter(value), "")) is str:
        return value
    return _otherwise(value, key, default, "a map with text keys")


def _otherwise(value: object, key: int, default: D | Required, wanted: str) -> D:
    """Return the default of an absent field; raise for any other value."""
    if value is not _ABSENT:
        raise LbmDecodeError(f"cell {key_name(key)} is not {wanted}")
    if isinstance(default, Required):
        raise LbmDecodeError(f"cell {key_name(key)} is missing")
    return default
