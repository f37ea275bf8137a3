"""The data of an event as text: one JSON object (RFC 8259) that every parser can read. NaN and
infinities are refused, as are names of fields that no peer could send on.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from parley._node.bus.errors import InvalidEventError
from parley._node.codec_faults import codec_fault

Data: TypeAlias = Mapping[str, Any]

_DECODER: Final = json.JSONDecoder()
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# What a store has in place of data that it cannot read begins so; the reason, a colon, and what was
# there follow. No JSON begins so.
UNREADABLE: Final = "unreadable: "
# The type of the names of fields; subclasses are refused.
_TEXT: Final = frozenset((str,))


def encode_value(value: object) -> str:
    """One value as JSON.

    Raises:
        InvalidEventError: JSON has no such value.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the data is not JSON: {codec_fault(error)}") from error


def encode_body(data: object, largest: int) -> str:
    """An event's data as JSON, of at most `largest` bytes of UTF-8.

    Raises:
        InvalidEventError: it is not a mapping of text to JSON values, or too long.
    """
    # `dict` first: to ask whether something is a Mapping is slow.
    if not isinstance(data, (dict, Mapping)) or not _TEXT.issuperset(map(type, data)):
        kind = type(data).__name__
        raise InvalidEventError(
            "the data of an event is a mapping of text to JSON values, not "
            + (f"one with other keys: {kind}" if isinstance(data, Mapping) else kind)
        )
    try:
        body = _ENCODER.encode(data if type(data) is dict else dict(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the data is not JSON: {codec_fault(error)}") from error
    try:
        size = len(body if body.isascii() else body.encode())
    except UnicodeEncodeError as error:
        raise InvalidEventError("the data has text that is not Unicode") from error
    if size > largest:
        raise InvalidEventError(f"the data has {size:,} bytes; at most {largest:,} may be")
    return body


def decode_body(body: str | bytes) -> dict[str, Any]:
    """The data of an event.

    Raises:
        InvalidEventError: it is not a JSON object; for data that a store could not read, why.
    """
    try:
        data = _parsed(body)
    except (ValueError, RecursionError) as error:
        if isinstance(body, str) and body.startswith(UNREADABLE):
            raise InvalidEventError(body.partition(": ")[2].partition(": ")[0]) from error
        raise InvalidEventError(f"the data is not JSON: {codec_fault(error)}") from error
    if not isinstance(data, dict):
        raise InvalidEventError(f"the data is JSON, but not an object: {type(data).__name__}")
    return data


def _parsed(body: str | bytes) -> Any:
    if type(body) is str and body.startswith("{"):
        value, end = _DECODER.raw_decode(body)  # in half the time of `loads`
        if end == len(body):
            return value
    return json.loads(body)
