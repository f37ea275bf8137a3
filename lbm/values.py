"""What a cell may hold, as types of Python.

Decoding makes `Value` and nothing else; encoding also takes what means the
same (`Encodable`). This file knows no bytes.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from parley._lbm.errors import LbmEncodeError

# What is in an array or a map is checked where it is read (lbm.cells), so it is Any here.
Value: TypeAlias = int | float | bytes | str | bool | list[Any] | dict[Any, Any] | None
Encodable: TypeAlias = Value | bytearray | memoryview | tuple[Any, ...] | Mapping[Any, Any]


class Encoded:
    """The encoding of one value, which the encoder copies. Containers in it count as if a payload's
    map alone were around it."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def plain(value: object) -> int | float | bytes | str | list[Any]:
    """Reduce a buffer or an instance of a subclass (say, of IntEnum) to its plain type.

    Reads what the object is made of, not what it says of itself: a subclass's own
    `__int__` or `__str__` is not asked. Raises LbmEncodeError for any other type.
    """
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(memoryview(value))
        except ValueError:
            raise LbmEncodeError("a memoryview that was released") from None
    raise LbmEncodeError(f"{type(value).__name__} has no encoding")


def plain_key(key: object) -> int | str:
    """Reduce a map key like `plain`; raises LbmEncodeError for all but integers and text."""
    if isinstance(key, int | str) and not isinstance(key, bool):
        return int.__index__(key) if isinstance(key, int) else str.__str__(key)
    raise LbmEncodeError(f"{type(key).__name__} cannot be a map key")
