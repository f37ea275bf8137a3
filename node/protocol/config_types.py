"""Checks that the fields of a dataclass have the types and ranges of their annotations.

`setting` describes a field that can be set in a settings file. Its range, unit and help text are
defined once, in the field's annotation. Checks that involve several fields are in the classes.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from parley._lbm.codec import Value

_LONGEST_QUOTE: Final = 80  # characters of a value in an error message
# msgspec's names of types, and Python's.
_WORDS: Final = {"array": "list", "object": "mapping", " | null": " or None", "`": ""}
_LARGEST: Final = sys.float_info.max

# Types of limits.
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


def setting(
    help_text: str,
    *,
    unit: str = "",
    reload: bool = False,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> msgspec.Meta:
    """Return the metadata of a setting, for use in `Annotated`.

    `reload` means that `parley serve` can apply a new value while it runs. `ge`, `gt` and `le` are
    the allowed range: at least, greater than, at most.
    """
    bounds: Any = {"ge": ge, "gt": gt, "le": le}
    extra = {"unit": unit, "reload": reload}
    found: msgspec.Meta = msgspec.Meta(description=help_text, extra=extra, **bounds)
    return found


def setting_of(hint: Any) -> msgspec.Meta | None:
    """Return the `setting` of an annotation, or None if it has none."""
    found = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta)]
    return next((each for each in found if each.description), None)


def is_reloadable(hint: Any) -> bool:
    """Return whether an annotation describes a setting that can change while a node runs."""
    found = setting_of(hint)
    return found is not None and bool((found.extra or {})["reload"])


def check_types(checked: Any, error: type[ValueError] = ValueError) -> None:
    """Check the type and range of each field of a dataclass instance; call it in `__post_init__`.

    Converts a list to a tuple or frozenset, a string to a Path and an int to a float where the
    annotation requires it. For fields with `repr=False`, the error doesn't include the value.

    Raises:
        error: a value has the wrong type or is outside its range.
    """
    made: Any = type(checked)
    for name, hint, shown in _hints(made):
        value = getattr(checked, name)
        try:
            converted = _converted(value, hint)
        except msgspec.ValidationError as wrong:
            found = f"{name} is {quoted(value)}" if shown else name
            reason = str(wrong)
            for word, plain in _WORDS.items():
                reason = reason.replace(word, plain)
            if reason.startswith("Invalid enum value"):
                reason = f"Expected {' or '.join(_choices(hint))}"
            raise error(f"{found}: {reason[0].lower()}{reason[1:]}") from None
        if type(converted) is not type(value) or converted != value:
            object.__setattr__(checked, name, converted)  # it is frozen


def quoted(value: object) -> str:
    """Return the repr of a value for an error message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."


def require_number(
    name: str,
    value: object,
    least: float = 0,
    *,
    whole: bool = False,
    above: bool = False,
    finite: bool = False,
    error: type[ValueError] = ValueError,
) -> None:
    """Check a number that isn't a field of a dataclass.

    Raises:
        error: it isn't a number, isn't `whole`, isn't `finite`, or is less than `least`
            (with `above`, not greater).
    """
    kinds = int if whole else int | float
    if isinstance(value, kinds) and not isinstance(value, bool):
        large_enough = value > least if above else value >= least
        if large_enough and (not finite or value <= _LARGEST):
            return
    kind = "a whole number" if whole else "a finite number" if finite else "a number"
    allowed = f"above {least:,}" if above else f"{least:,} or more"
    raise error(f"{name} is {value!r}; it must be {kind}, {allowed}")


@cache
def _hints(checked: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(checked, include_extras=True)
    return tuple((f.name, _supported(hints[f.name]), f.repr) for f in fields(checked) if f.init)


def _supported(hint: Any) -> Any:
    """Return the annotation in a form that msgspec supports."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        return Annotated[_supported(inner), *metadata]
    # The encoder checks values; msgspec doesn't support a union of several string types.
    return Mapping[str, Any] if hint == Mapping[str, Value] else hint


def _converted(value: Any, hint: Any) -> Any:
    # msgspec would convert any mapping to a dataclass.
    if is_dataclass(hint):
        _require_instances((value,), hint)
    elif isinstance(value, Mapping):
        for kind in filter(is_dataclass, get_args(hint)):
            _require_instances(value.values(), kind)
    converted = msgspec.convert(value, hint, dec_hook=_decode, builtin_types=(bytes,))
    if isinstance(converted, int | float) and not abs(converted) <= _LARGEST:
        raise msgspec.ValidationError("Expected a finite number")
    return converted


def _require_instances(values: Iterable[Any], kind: Any) -> None:
    if not all(isinstance(each, kind) for each in values):
        raise msgspec.ValidationError(f"Expected {kind.__name__}")


def _choices(hint: Any) -> Iterator[str]:
    """Yield the texts of the Literals in an annotation."""
    for each in get_args(hint):
        if get_origin(hint) is Literal:
            yield each
        else:
            yield from _choices(each)


def _decode(kind: type, value: object) -> object:
    """Convert a string to a path; called for types that msgspec doesn't know."""
    if isinstance(value, get_origin(kind) or kind):
        return value
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise msgspec.ValidationError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
