"""Checks of the functions and names that an application registers."""

from collections.abc import Callable
from inspect import (
    isasyncgenfunction,
    iscoroutine,
    isgeneratorfunction,
    ismethod,
    signature,
)
from typing import Any, Final

from parley._node.errors import ConfigError
from parley._node.transport.conditions import is_async

_SHOWN: Final = 64  # characters of a name in an error


def require_callable(
    function: object, what: str, *arguments: str, yields: bool = False, plain: bool = False
) -> Callable[..., Any]:
    """Return `function` if it can be called with positional arguments of these names.

    `what` describes it in errors. `yields` permits an asynchronous generator; `plain` forbids
    asynchronous functions.

    Raises:
        ConfigError: it isn't callable, doesn't accept these arguments, or is a generator.
    """
    reason = _fault(function, arguments, yields=yields)
    if reason is None and plain and is_async(function):
        reason = "it is asynchronous and would never be awaited; pass a plain function"
    if reason is not None:
        name = getattr(function, "__qualname__", None)
        shown = repr(function) if name is None else repr(str(name))
        raise ConfigError(f"cannot use {shown} as {what}: {reason}")
    assert callable(function)  # guaranteed by `_unsuitable`
    return function


def is_callable_with(function: Callable[..., Any], count: int) -> bool:
    """Whether a function accepts `count` positional arguments but not fewer."""
    return (
        _fault(function, ("",) * count, yields=False) is None
        and _fault(function, ("",) * (count - 1), yields=False) is not None
    )


def require_name(name: object, decorator: str, example: str | None = None) -> str:
    """Return the `name` given to a decorator.

    Raises:
        ConfigError: it isn't text, for example because the decorator has no parentheses.
    """
    if isinstance(name, str):
        return check_name("a handler", name)
    if callable(name):
        function = getattr(name, "__name__", "handler")
        raise ConfigError(
            f"cannot register {function!r}: the decorator {decorator} is missing its arguments; "
            f'write @{decorator}("{example or function}")'
        )
    raise ConfigError(f"cannot register a handler of {name!r}: the name must be str")


def check_name(owner: str, name: object) -> str:
    """Return the name of a call, topic, stream, event or namespace; `owner` describes it in errors.

    Raises:
        ConfigError: it isn't text, or has a lone surrogate, which cannot be encoded.
    """
    if not isinstance(name, str):
        raise ConfigError(f"cannot use {name!r} as the name of {owner}: it must be str")
    if any("\ud800" <= character <= "\udfff" for character in name):
        shown = ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..")
        raise ConfigError(
            f"cannot use {shown} as the name of {owner}: it has a lone surrogate, which cannot be "
            "encoded; decode its bytes as UTF-8"
        )
    return name


def _fault(function: Any, arguments: tuple[str, ...], *, yields: bool) -> str | None:
    if iscoroutine(function):
        function.close()
        return "it is a coroutine; pass the function without calling it"
    if not callable(function):
        return "it is not a function"
    if isgeneratorfunction(function):
        return "it is a generator function; define it with async def"
    if isasyncgenfunction(function) and not yields:
        return "it is a generator function, but yielded values are not supported here"
    try:
        accepted = signature(function)
    except (TypeError, ValueError):
        # Only built-in functions and methods without self have no signature.
        return "it is a method without self" if ismethod(function) else None
    try:
        accepted.bind(*arguments)
    except TypeError as error:
        return f"it must be callable with ({', '.join(arguments)}): {error}"
    return None
