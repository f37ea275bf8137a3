"""`DataType`: what data is to be, by a type hint, checked as it comes and as it goes.

What does not fit is told with its place, in one line, and in one that a stranger cannot steer.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic

from parley._lbm.codec import Encodable
from parley._node.errors import ConfigError, MalformedDataError
from parley._node.logs import one_line
from parley._node.typed.models import R, holds_model

if TYPE_CHECKING:
    from types import ModuleType

# Characters of a place, and of what is wrong there: both may show the data, which may be long.
LONGEST_TEXT: Final = 300
# Types that are remembered as checked; others are checked each time they are named.
REMEMBERED: Final = 1_024


class DataType(Generic[R]):
    """What data is to be, by `hint`: a class, or any hint that msgspec takes.

    Raises:
        ConfigError: it is not a type of data.
    """

    __slots__ = ("_conversion", "_schema", "hint")

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self._schema: str | None = None
        self._conversion = conversion = _conversion()
        try:
            conversion.check_hint(hint)
        except TypeError as error:
            raise ConfigError(f"{self} cannot be checked: {error}") from error

    def __str__(self) -> str:
        return self.hint.__name__ if isinstance(self.hint, type) else str(self.hint)

    def schema(self) -> str:
        """It as JSON Schema (draft 2020-12), a text; empty if there is no schema of it."""
        if self._schema is None:
            try:
                schema = self._conversion.json_schema(self.hint)
                self._schema = json.dumps(schema, separators=(",", ":"))
            except (TypeError, ValueError):
                self._schema = ""
        return self._schema

    def read(self, data: object) -> R:
        """Data that came, which may be anything, as this type.

        Raises:
            MalformedDataError: it does not fit.
        """
        try:
            value: R = self._conversion.convert(data, self.hint)
        except self._conversion.Misfit as misfit:
            raise MalformedDataError(_short(misfit.place), _short(misfit.what)) from misfit
        return value

    def write(self, value: R) -> Encodable:
        """A value of ours as what is sent, which is what `read` takes.

        Raises:
            TypeError: it does not fit, or has no encoding.
        """
        data: Encodable = self._conversion.plain_values(value)
        try:
            self._conversion.convert(data, self.hint)
        except self._conversion.Misfit as misfit:
            raise TypeError(f"not of type {self}: {_short(str(misfit))}") from misfit
        return data


def data_type(hint: Any) -> DataType[Any]:
    """The DataType of a hint; raises as that does."""
    try:
        return _remembered(hint)
    except TypeError:  # it has no hash
        return DataType(hint)


@lru_cache(REMEMBERED)
def _remembered(hint: Any) -> DataType[Any]:
    return DataType(hint)


def plain_cells(cells: Mapping[int, Any], error: Exception) -> Mapping[int, Encodable]:
    """The cells of a payload with each model in them as a map. `error`, which is why they cannot
    be encoded as they are, is raised if they hold none, or one that cannot be sent either."""
    if not holds_model(cells):
        raise error
    try:
        plain: Mapping[int, Encodable] = _conversion().plain_values(cells)
    except Exception:
        # A model's own code may raise anything.
        raise error from None
    return plain


def plain_value(value: object, error: Exception) -> Any:
    """A value with each model in it as a map; raises as `plain_cells`."""
    return plain_cells({0: value}, error)[0]


def _conversion() -> "ModuleType":
    # Imported here because most programs give no types, and start faster without it.
    from parley._node.typed import conversion

    return conversion


def _short(text: str) -> str:
    return one_line(text[:LONGEST_TEXT])
