"""What stands in signatures for data of a type: variables, and the models that may be sent."""

from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from parley._lbm.codec import Encodable, Value

    # What is read: any LBM value unless a type is named. What is sent, likewise.
    D = TypeVar("D", default=Value)
    N = TypeVar("N", default=Encodable)
    # The data of an event of a bus.
    E_co = TypeVar("E_co", default=dict[str, Any], covariant=True)
else:
    # Those of Python 3.11 have no default, which is for type checkers alone.
    from typing import TypeVar

    D = TypeVar("D")
    N = TypeVar("N")
    E_co = TypeVar("E_co", covariant=True)

# A type that is named.
R = TypeVar("R")


class Dataclass(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class MsgspecStruct(Protocol):
    """A Struct of msgspec."""

    __struct_fields__: ClassVar[tuple[str, ...]]


class PydanticModel(Protocol):
    """A model of pydantic, as far as it is sent."""

    def model_dump(self, *, by_alias: bool) -> dict[str, Any]:
        """What it holds, as plain values."""


# What is sent as a map, or as text, by the extra `typed`: LBM has no encoding for it.
Model: TypeAlias = (
    Dataclass | MsgspecStruct | PydanticModel
    | date | time | timedelta | Decimal | UUID | Enum
)  # fmt: skip

_AS_TEXT = (date, time, timedelta, Decimal, UUID, Enum)
_MARKS = ("__dataclass_fields__", "__struct_fields__", "model_dump", "__attrs_attrs__")


def holds_model(value: object, levels: int = 16) -> bool:
    """Whether a value is a `Model`, or holds one within so many levels of lists and maps."""
    if isinstance(value, _AS_TEXT) or any(hasattr(type(value), mark) for mark in _MARKS):
        return True
    if isinstance(value, dict):
        value = list(value.values())
    if not levels or not isinstance(value, list | tuple):
        return False
    return any(holds_model(one, levels - 1) for one in value)
