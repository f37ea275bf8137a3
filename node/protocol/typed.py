"""Settings are what their annotations say: checked when made, and converted from text or lists
where these are natural.

Driven by the types of a dataclass's fields, so that a new setting is checked as well.
Ranges, and what settings have to do with each other, are for each class to say.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from parley._lbm.noise import Padding, parse_padding
from parley._lbm.values import Value

_NAMES: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    bytes: "bytes",
    Path: "a path",
    tuple: "a list",
    frozenset: "a set",
    Mapping: "a mapping",
    type(None): "None",
}
_LONGEST_QUOTE: Final = 80  # characters of a wrong value


class _MisfitError(ValueError):
    """A value is not of its type."""


def _path(text: str) -> Path:
    if not text:
        raise _MisfitError
    return Path(text)


# Types that have a text which everybody writes.
_FROM_TEXT: Final[Mapping[Any, Callable[[str], object]]] = {Padding: parse_padding, Path: _path}


def check_types(settings: Any, error: type[ValueError] = ValueError) -> None:
    """Hold each field of a dataclass to its annotation; for its `__post_init__`.

    Text becomes a `Padding` or a `Path`, a list a tuple, a list or set a frozenset. Whatever
    a field that is left out of the repr holds is left out of the error, too.

    Raises:
        error: a value is of another type.
    """
    of: Any = type(settings)
    for name, hint, shown in _hints(of):
        value = getattr(settings, name)
        try:
            fitting = _fitted(value, hint)
        except _MisfitError:
            quote = repr(value)
            if len(quote) > _LONGEST_QUOTE:
                quote = quote[:_LONGEST_QUOTE] + "..."
            found = f"{name} is {quote}" if shown else f"{name} is of another type"
            raise error(f"{found}; it must be {_wanted(hint)}") from None
        except ValueError as wrong:  # what a text was refused for
            raise error(str(wrong)) from wrong
        if fitting is not value:
            object.__setattr__(settings, name, fitting)  # it is frozen


def require_number(
    name: str,
    value: object,
    least: float = 0,
    *,
    whole: bool = False,
    error: type[ValueError] = ValueError,
) -> None:
    """Check one number that isn't a field of a dataclass.

    Raises:
        error: it isn't a number, isn't `whole`, or is less than `least`.
    """
    kinds = int if whole else int | float
    if isinstance(value, kinds) and not isinstance(value, bool) and value >= least:
        return
    kind = "a whole number" if whole else "a number"
    raise error(f"{name} is {value!r}; it must be {kind}, {least:,} or more")


@cache
def _hints(settings: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(settings)
    return tuple((f.name, hints[f.name], f.repr) for f in fields(settings) if f.init)


def _fitted(value: Any, hint: Any) -> Any:
    """The value as its type has it."""
    if hint == Value:
        return value  # the encoder says what it takes
    arms = tuple(_arms(hint))
    for arm in arms:
        if isinstance(value, str) and arm in _FROM_TEXT:
            return _FROM_TEXT[arm](value)
    for arm in arms:
        try:
            return _fitted_to(value, arm)
        except _MisfitError:
            continue
    raise _MisfitError


def _fitted_to(value: Any, hint: Any) -> Any:
    """The same for a type that is not a union."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Mapping:
        return _fitted_mapping(value, *inner)
    if kind in (tuple, frozenset):
        return _fitted_items(value, kind, inner)
    if kind is Any:
        return value
    if not _is_of(value, kind, inner):
        raise _MisfitError
    return value


def _is_of(value: object, kind: Any, inner: tuple[Any, ...]) -> bool:
    if kind is Literal:
        return type(value) is str and value in inner
    if kind is Callable:
        return callable(value)
    if kind in (int, bool):  # True is not a number here
        return type(value) is kind
    if kind is float:
        return type(value) in (int, float)
    return isinstance(value, kind)


def _fitted_items(value: Any, kind: Callable[[Any], Any], inner: tuple[Any, ...]) -> Any:
    allowed = (tuple, list) if kind is tuple else (frozenset, set, tuple, list)
    if not isinstance(value, allowed):
        raise _MisfitError
    if kind is frozenset or inner[-1] is Ellipsis:
        inner = inner[:1] * len(value)
    elif len(inner) != len(value):
        raise _MisfitError
    items = [_fitted(each, of) for each, of in zip(value, inner, strict=True)]
    return value if type(value) is kind and all(map(_same, items, value)) else kind(items)


def _fitted_mapping(value: Any, key: Any, item: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _MisfitError
    found = {_fitted(each, key): _fitted(of, item) for each, of in value.items()}
    return value if all(map(_same, found.values(), value.values())) else found


def _same(one: object, other: object) -> bool:
    return one is other


def _arms(hint: Any) -> Iterator[Any]:
    """The types of a union, or the one."""
    if get_origin(hint) in (Union, UnionType):
        for arm in get_args(hint):
            yield from _arms(arm)
    else:
        yield hint


def _wanted(hint: Any) -> str:
    """What a field of this type may be, for people."""
    if hint in (Value, Any):
        return "a value"
    arms = list(_arms(hint))
    if len(arms) > 1:
        return " or ".join(map(_wanted, arms))
    kind, inner = get_origin(arms[0]) or arms[0], get_args(arms[0])
    if kind is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if kind is Callable:
        return "a function"
    name = _NAMES.get(kind) or f"a {kind.__name__}"
    if kind is Mapping:
        return f"{name} of {_wanted(inner[0])} to {_wanted(inner[1])}"
    if kind in (tuple, frozenset):
        return f"{name} of {' and '.join(_wanted(item) for item in inner if item is not Ellipsis)}"
    return name
