"""The type hints of a handler, resolved: `async def order(call: Call[Order])`."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

from parley._node.errors import ConfigError


def handler_hints(handler: Callable[..., Any], what: str, request: type) -> dict[str, Any]:
    """The hints of a handler whose request is of the generic class `request`; none if they cannot
    be resolved and name no type of data. `what` describes the handler in errors.

    Raises:
        ConfigError: a hint that names a type of data cannot be resolved.
    """
    function: Any = handler
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__annotations__"):
        function = function.__call__  # an object that is called
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:
        # Whatever the evaluation of its author's hints may raise: names that are imported for
        # type checking alone, most of all. Hints of a handler without types don't matter here.
        raw = getattr(function, "__annotations__", {}).values()
        if any(f"{request.__name__}[" in str(hint) for hint in raw):
            raise ConfigError(
                f"{what}: its hints cannot be resolved ({error}); what they name must be "
                "there when the program runs, at the top of the handler's module"
            ) from error
        return {}


def data_hint(hints: dict[str, Any], request: type) -> Any:
    """The type of data that the hints name: that of the first `request[...]`, or None."""
    return next((get_args(one)[0] for one in hints.values() if get_origin(one) is request), None)
