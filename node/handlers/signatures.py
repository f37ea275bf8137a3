"""Validation of handlers' type hints: `async def order(call: Call[Order]) -> Receipt`.

A request whose data does not match is refused before the handler runs; an answer that does not
match counts as a failure of the handler. Handlers without type hints are not changed. Neither are
handlers whose only hint is a return type that LBM can encode, such as `-> dict[str, int]`.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Mapping,
)
from contextlib import aclosing
from functools import partial
from inspect import isasyncgen, isawaitable
from types import NoneType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

from parley._lbm.codec import Encodable, Value
from parley._node.data_types import DataType, data_hint, data_type, handler_hints
from parley._node.errors import CallRefused, ConfigError, MalformedDataError
from parley._node.messaging.payloads import FormattedPayload, Payload, Tandem
from parley._node.protocol.codes import ResultCode
from parley._node.remote.requests import Call, NamedEvent

# Hints that allow any value.
_ANYTHING: Final = (Any, object, Value, Encodable, Payload, FormattedPayload, Tandem)
# Classes that LBM can encode, together with their subclasses.
_ENCODED: Final = (int, float, str, bytes, bytearray, memoryview, list, tuple, Mapping, NoneType)

Handler = Callable[[Any], Any]
H = TypeVar("H", bound=Callable[..., Any])


def checked(handler: H, what: str, request: type[Call[Any] | NamedEvent[Any]]) -> H | Handler:
    """Return a handler that validates its data and answer; `handler` itself if it has no types.

    `what` names it in messages; `request` is the class of its argument.

    Raises:
        ConfigError: a hint cannot be resolved or checked.
    """
    takes, gives = _hints(handler, what, request)
    try:
        reads = None if takes is None else data_type(takes)
        writes = None if gives is None else data_type(gives)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from error
    return handler if reads is None and writes is None else _TypedHandler(handler, reads, writes)


def described(handler: Any) -> tuple[Any, DataType[Any] | None, DataType[Any] | None]:
    """Return the function of a handler, the type of its data, and the type of its answer or
    items.
    """
    takes = gives = None
    if isinstance(handler, _TypedHandler):
        handler, takes, gives = handler.handler, handler.takes, handler.gives
    while isinstance(handler, partial):
        handler = handler.func
    return handler, takes, gives


class _TypedHandler:
    """A handler with the types of its data and of its answer, or of each item."""

    __slots__ = ("gives", "handler", "takes")

    def __init__(
        self, handler: Handler, takes: DataType[Any] | None, gives: DataType[Any] | None
    ) -> None:
        self.handler = handler
        self.takes = takes
        self.gives = gives

    def __call__(self, request: Any) -> Any:
        if self.takes is not None:
            try:
                request.hold_to(self.takes)
            except MalformedDataError as error:
                raise CallRefused(ResultCode.MALFORMED, str(error)) from error
        result = self.handler(request)
        if self.gives is None:
            return result
        if isasyncgen(result):
            return _written_items(result, self.gives)
        if isawaitable(result):
            return _written(result, self.gives)
        return self.gives.write(result)


async def _written(result: Awaitable[Any], gives: DataType[Any]) -> Encodable:
    return gives.write(await result)


async def _written_items(
    items: AsyncGenerator[Any, Any], gives: DataType[Any]
) -> AsyncGenerator[Encodable, None]:
    async with aclosing(items):
        async for item in items:
            yield gives.write(item)


def _hints(handler: Handler, what: str, request: type) -> tuple[Any, Any]:
    """Return the hints for a handler's data and its answer; None for unspecified ones."""
    hints = handler_hints(handler, what, request)
    answer = _awaited(hints.pop("return", Any))
    takes = data_hint(hints, request)
    gives = None if _says_nothing(answer) else answer
    # The answer to a named event can be in any format, not only LBM.
    if takes is None and (request is NamedEvent or not _needs_more(gives)):
        return None, None
    return (None if _says_nothing(takes) else takes), gives


def _awaited(hint: Any) -> Any:
    """Return the type of the answer, or of each item, for a function with this return type."""
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or not issubclass(kind, AsyncIterable | Awaitable):
        return hint
    inside = get_args(hint) or (Any,)
    return inside[0 if issubclass(kind, AsyncIterable) else -1]


def _says_nothing(hint: Any) -> bool:
    return hint in _ANYTHING or isinstance(hint, TypeVar)


def _needs_more(hint: Any) -> bool:
    """Whether a hint contains a type that LBM cannot encode."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if isinstance(hint, type) and not get_args(hint):
        plain = issubclass(hint, _ENCODED) or hint.__module__ in ("typing", "collections.abc")
        return not plain and hint is not object
    return any(_needs_more(argument) for argument in get_args(hint))
