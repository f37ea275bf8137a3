"""The data of an event as text: one JSON object (RFC 8259).

One rule: what is stored can be read by every JSON parser; NaN and infinities are refused, as are
names of fields that no peer could send on. Knows nothing of events.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from node.bus.errors import InvalidEventError

Data: TypeAlias = Mapping[str, Any]

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# What a store has in place of data that it cannot read: this, why, a colon, and what was there. No
# JSON begins so.
UNREADABLE: Final = "unreadable: "
# What the names of fields are; no subclasses.
_TEXT: Final = frozenset((str,))


def encode_value(value: object) -> str:
    """One value as JSON.

    Raises:
        InvalidEventError: JSON has no such value.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the data is not JSON: {error}") from error


def encode_body(data: object, largest: int) -> str:
    """An event's data as JSON, of at most `largest` bytes of UTF-8.

    Raises:
        InvalidEventError: it is no mapping of text to JSON values, or too long.
    """
    # `dict` first: to ask whether something is a Mapping is slow.
    if not isinstance(data, (dict, Mapping)) or not _TEXT.issuperset(map(type, data)):
        raise InvalidEventError("the data of an event is a mapping of text to JSON values")
    body = encode_value(data if type(data) is dict else dict(data))
    try:
        size = len(body if body.isascii() else body.encode())
    except UnicodeEncodeError as error:
        raise InvalidEventError("the data has text that is no Unicode") from error
    if size > largest:
        raise InvalidEventError(f"the data has {size:,} bytes; at most {largest:,} may be")
    return body


def decode_body(body: str | bytes) -> dict[str, Any]:
    """The data of an event.

    Raises:
        InvalidEventError: it is no JSON object; of what a store could not read it says why.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        if isinstance(body, str) and body.startswith(UNREADABLE):
            raise InvalidEventError(body.partition(": ")[2].partition(": ")[0]) from error
        raise InvalidEventError(f"the data is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise InvalidEventError("the data is JSON, but no object")
    return data
