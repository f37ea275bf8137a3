"""Validates payloads against the schema of their event type (docs/protocol.md section 3).

Required fields must be present, and each field must have the right type and range. Unknown fields
are ignored. The schemas are in `event_types`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from parley._lbm.codec import decode_weighed
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import MAX_UINT
from parley._lbm.keys import key_name


class FieldType(NamedTuple):
    """The allowed values of a field: their type `of` (None means any type) and a condition."""

    wanted: str
    of: type | None = None
    holds: Callable[[Any], bool] | None = None


ANY: Final = FieldType("a value")
BYTES: Final = FieldType("a byte string", bytes)
TEXT: Final = FieldType("a text string", str)
BOOL: Final = FieldType("a boolean", bool)
# All keys of a decoded map have the same type, so checking the first suffices.
TEXT_MAP: Final = FieldType(
    "a map with text keys", dict, lambda value: type(next(iter(value), "")) is str
)


def uint(least: int = 0, most: int = MAX_UINT) -> FieldType:
    return FieldType(f"an integer of {least}..{most}", int, range(least, most + 1).__contains__)


def exactly(size: int) -> FieldType:
    return FieldType(f"a byte string of {size} bytes", bytes, lambda value: len(value) == size)


def text(longest: int) -> FieldType:
    return FieldType(
        f"text of up to {longest} characters", str, lambda value: len(value) <= longest
    )


def array(most: int) -> FieldType:
    return FieldType(f"an array of up to {most} elements", list, lambda value: len(value) <= most)


class PayloadSchema:
    """The required and optional fields of one type of event.

    `check` raises LbmDecodeError for contradictory fields. With `may_be_empty`, the payload may be
    absent.
    """

    __slots__ = ("_check", "_may_be_empty", "kinds", "required")

    def __init__(
        self,
        required: Mapping[int, FieldType],
        optional: Mapping[int, FieldType] | None = None,
        *,
        check: Callable[[Mapping[int, Any]], object] | None = None,
        may_be_empty: bool = False,
    ) -> None:
        self.required = tuple(required)
        self._check = check
        self._may_be_empty = may_be_empty
        self.kinds: Mapping[int, FieldType] = {**required, **(optional or {})}

    def read(self, payload: bytes) -> dict[int, Any]:
        """Return the fields of a payload; empty bytes mean that it is absent.

        Raises:
            LbmDecodeError: the payload is malformed.
        """
        return self.read_weighed(payload)[0]

    def read_weighed(self, payload: bytes) -> tuple[dict[int, Any], int]:
        """Like `read`, but also return the approximate memory of the fields in bytes."""
        cells: dict[int, Any] = {}
        weight = 0
        if payload or not self._may_be_empty:
            cells, weight = decode_weighed(payload)
        kinds, foreign = self.kinds, False
        for key, value in cells.items():
            if key not in kinds:
                foreign = True
                continue
            wanted, of, holds = kinds[key]
            if (of is not None and type(value) is not of) or (
                holds is not None and not holds(value)
            ):
                raise LbmDecodeError(f"cell {key_name(key)} is not {wanted}")
        for key in self.required:
            if key not in cells:
                raise LbmDecodeError(f"cell {key_name(key)} is missing")
        if foreign:
            cells = {key: value for key, value in cells.items() if key in kinds}
        if self._check is not None:
            self._check(cells)
        return cells, weight
