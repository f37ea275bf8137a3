"""Type hints of data: validation, conversion with msgspec, and the hints of handlers.

msgspec is imported when the first hint is used, because most programs use no types.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from parley._lbm.codec import Encodable
from parley._node.errors import ConfigError, MalformedDataError
from parley._node.logs import one_line

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from parley._lbm.codec import Value

    # Types of received and sent data, by default any LBM value.
    D = TypeVar("D", default=Value)
    N = TypeVar("N", default=Encodable)
    # The type of a bus event's data.
    E_co = TypeVar("E_co", default=dict[str, Any], covariant=True)
else:
    # TypeVars of Python 3.11 have no default; only type checkers need it.
    from typing import TypeVar

    D = TypeVar("D")
    N = TypeVar("N")
    E_co = TypeVar("E_co", covariant=True)

# A type given explicitly.
R = TypeVar("R")


class Dataclass(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class MsgspecStruct(Protocol):
    """A msgspec Struct."""

    __struct_fields__: ClassVar[tuple[str, ...]]


class PydanticModel(Protocol):
    """A pydantic model: the part of its interface that sending requires."""

    def model_dump(self, *, by_alias: bool) -> dict[str, Any]:
        """Return the fields as plain values."""


# Types that LBM cannot encode. The extra `typed` sends them as a map or as text.
Model: TypeAlias = (
    Dataclass | MsgspecStruct | PydanticModel
    | date | time | timedelta | Decimal | UUID | Enum
)  # fmt: skip

_AS_TEXT = (date, time, timedelta, Decimal, UUID, Enum)
_MARKS = ("__dataclass_fields__", "__struct_fields__", "model_dump", "__attrs_attrs__")


def holds_model(value: object, levels: int = 16) -> bool:
    """Return whether a value is a `Model` or contains one within `levels` levels of lists and
    maps.
    """
    if isinstance(value, _AS_TEXT) or any(hasattr(type(value), mark) for mark in _MARKS):
        return True
    if isinstance(value, dict):
        value = list(value.values())
    if not levels or not isinstance(value, list | tuple):
        return False
    return any(holds_model(one, levels - 1) for one in value)


def handler_hints(handler: Callable[..., Any], what: str, request: type) -> dict[str, Any]:
    """Return the type hints of a handler whose request has the generic class `request`.

    Returns an empty dict if they cannot be resolved but name no type of data. `what` describes the
    handler in errors.

    Raises:
        ConfigError: a hint that names a type of data cannot be resolved.
    """
    function: Any = handler
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__annotations__"):
        function = function.__call__  # a callable object
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:
        # Evaluating a hint may raise anything, mostly because a name is imported for type checking
        # only. Without types of data, a handler's hints don't matter here.
        raw = getattr(function, "__annotations__", {}).values()
        if any(f"{request.__name__}[" in str(hint) for hint in raw):
            raise ConfigError(
                f"cannot resolve the type hints of {what}: {error}; import the types at run time, "
                "at the top of the handler's module"
            ) from error
        return {}


def data_hint(hints: dict[str, Any], request: type) -> Any:
    """Return the type of data in the first hint `request[...]`, or None."""
    return next((get_args(one)[0] for one in hints.values() if get_origin(one) is request), None)


# Types that msgspec would encode as base64.
_NATIVE: Final = (bytes, bytearray, memoryview)
# The form of msgspec's errors: "Expected `int`, got `str` - at `$.items[2].price`".
_PLACE: Final = re.compile(r"(?s)(.*) - at (`key` in )?`(\$.*)`")
# pydantic collects all errors, a kilobyte and microseconds each. A payload of 130 KB can have a
# million, which would take 500 MB and two seconds. Above this number, only the count is reported.
MOST_TOLD: Final = 100
# Maximum characters of the location and the description, which can quote long data.
LONGEST_TEXT: Final = 300
# The size of the cache of checked types.
REMEMBERED: Final = 1_024


class MisfitError(Exception):
    """Raised for data that does not match a hint; `what` is wrong at `place` (`$` for the
    whole).
    """

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}")
        self.place = place
        self.what = what


class DataType(Generic[R]):
    """A type of data that can be validated: a class or any type hint that msgspec accepts.

    Example:

        from parley import DataType

        numbers = DataType(list[int])
        assert numbers.read([1, 2]) == [1, 2]

    Raises:
        ConfigError: the hint is not a type of data.
    """

    __slots__ = ("_schema", "hint")

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self._schema: str | None = None
        try:
            check_hint(hint)
        except TypeError as error:
            raise ConfigError(f"cannot check data of type {self}: {error}") from error

    def __str__(self) -> str:
        return self.hint.__name__ if isinstance(self.hint, type) else str(self.hint)

    def schema(self) -> str:
        """Return the JSON Schema (draft 2020-12) as text, or an empty string if the type has
        none.
        """
        if self._schema is None:
            try:
                self._schema = json.dumps(json_schema(self.hint), separators=(",", ":"))
            except (TypeError, ValueError):
                self._schema = ""
        return self._schema

    def read(self, data: object) -> R:
        """Validate received data and convert it to this type.

        Raises:
            MalformedDataError: the data does not match.
        """
        try:
            value: R = convert(data, self.hint)
        except MisfitError as misfit:
            raise MalformedDataError(_short(misfit.place), _short(misfit.what)) from misfit
        return value

    def write(self, value: R) -> Encodable:
        """Convert a value of this type to plain values for sending.

        Raises:
            TypeError: the value does not match the type, or cannot be encoded.
        """
        data: Encodable = plain_values(value)
        try:
            convert(data, self.hint)
        except MisfitError as misfit:
            raise TypeError(f"not of type {self}: {_short(str(misfit))}") from misfit
        return data


def data_type(hint: Any) -> DataType[Any]:
    """Return the cached DataType of a hint.

    Raises:
        ConfigError: the hint is not a type of data.
    """
    try:
        return _cached_type(hint)
    except TypeError:  # the hint is not hashable
        return DataType(hint)


@lru_cache(REMEMBERED)
def _cached_type(hint: Any) -> DataType[Any]:
    return DataType(hint)


def plain_cells(cells: Mapping[int, Any], error: Exception) -> Mapping[int, Encodable]:
    """Return the fields of a payload with each model converted to a map.

    If they contain no model, or one that cannot be converted, raise `error`: the reason why they
    could not be encoded directly.
    """
    if not holds_model(cells):
        raise error
    try:
        plain: Mapping[int, Encodable] = plain_values(cells)
    except Exception:  # a model's own code may raise anything
        raise error from None
    return plain


def plain_value(value: object, error: Exception) -> Any:
    """Return a value with each model converted to a map; raises as `plain_cells`."""
    return plain_cells({0: value}, error)[0]


def _short(text: str) -> str:
    return one_line(text[:LONGEST_TEXT])


def check_hint(hint: Any) -> None:
    """Raise TypeError if msgspec doesn't support `hint` or a part of it."""
    import msgspec

    part_types = msgspec.inspect.Type | msgspec.inspect.Field
    found: list[Any] = [msgspec.inspect.type_info(hint)]
    seen = {id(found[0])}
    for part in found:  # the loop appends the parts it finds
        if isinstance(part, msgspec.inspect.CustomType):
            _require_model(part.cls)
        for name in part.__struct_fields__:
            inside = getattr(part, name)
            for one in inside if isinstance(inside, tuple) else (inside,):
                if isinstance(one, part_types) and id(one) not in seen:
                    seen.add(id(one))
                    found.append(one)
    # Only a conversion detects the unions that msgspec doesn't support.
    with suppress(msgspec.ValidationError):
        msgspec.convert(None, hint, builtin_types=_NATIVE, dec_hook=_read_model)


def convert(data: object, hint: Any) -> Any:
    """Convert plain LBM values to `hint`, strictly: for example, text is not converted to a number.

    Byte strings and integer keys are left unchanged. LBM represents dates, UUIDs and decimals as
    text.

    Raises:
        MisfitError: the data does not match.
    """
    import msgspec

    try:
        return msgspec.convert(data, hint, builtin_types=_NATIVE, dec_hook=_read_model)
    except msgspec.ValidationError as error:
        raise _misfit(error) from error
    except TypeError as error:  # for example, a list inside a set
        raise MisfitError("$", str(error)) from error


def plain_values(data: object) -> Any:
    """Return `data` with each model converted to a map, and types that LBM lacks converted to text.

    Raises:
        TypeError: it contains a type that msgspec doesn't support.
    """
    import msgspec

    return msgspec.to_builtins(data, builtin_types=_NATIVE, enc_hook=_write_model)


def json_schema(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the data that `convert` accepts for `hint`.

    Byte strings, which JSON lacks, have the format `binary`.

    Raises:
        TypeError: the type has no schema.
    """
    import msgspec

    models: dict[str, Any] = {}

    def of_model(kind: Any) -> dict[str, Any]:
        if kind is object:
            return {}
        schema: dict[str, Any] = kind.model_json_schema(ref_template="#/$defs/{model}")
        models.update(schema.pop("$defs", {}))
        return schema

    try:
        schema = msgspec.json.schema(hint, schema_hook=of_model)
    except Exception as error:  # a model's own code may raise anything
        raise TypeError(f"no JSON Schema: {error}") from error
    if models:
        schema["$defs"] = {**models, **schema.get("$defs", {})}
    _mark_binary(schema)
    return schema


def _require_model(hint: Any) -> None:
    if hint is not object and not hasattr(hint, "model_validate"):
        name = hint.__name__ if isinstance(hint, type) else hint
        raise TypeError(f"{name} is not a type of data")


def _read_model(hint: Any, data: object) -> Any:
    return data if hint is object else hint.model_validate(data)


def _write_model(value: object) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"cannot encode a value of type {type(value).__name__}")
    return dump(by_alias=True)


def _misfit(error: Exception) -> MisfitError:
    found = _PLACE.fullmatch(str(error))
    what, in_key, place = found.groups() if found else (str(error), None, "$")
    # pydantic's own error has the location and the reason as separate fields.
    cause: Any = error.__cause__
    if not hasattr(cause, "error_count"):
        pass
    elif cause.error_count() > MOST_TOLD:
        what = f"{cause.error_count():,} values do not fit"
    else:
        first, *others = cause.errors(include_url=False, include_context=False, include_input=False)
        what = first["msg"] + (f" (and {len(others)} more)" if others else "")
        place += "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        )
    what = what.replace("`", "")
    return MisfitError(place, what + " (a key)" if in_key else what)


def _mark_binary(part: Any) -> None:
    """Replace base64 in a schema, because byte strings are sent unencoded."""
    if isinstance(part, dict):
        if part.get("contentEncoding") == "base64":
            del part["contentEncoding"]
            part["format"] = "binary"
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            _mark_binary(one)
