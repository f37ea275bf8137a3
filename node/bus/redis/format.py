"""How events look in Redis: names of streams, fields, and encodings, for each API.

One rule: what Lightbus 1.1.2 writes is what `RedisFormat()` writes; the format its documentation
describes is `DOCUMENTED`. Both are understood when reading. Speaks to no server.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from node.bus.body import encode_value

Layout = Literal["per_event", "per_api"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFormat:
    """The format of one API's streams.

    Attributes:
        layout: a stream for each event (`auth.user_registered`) or for the API (`auth.*`).
        suffix: what ends the name of a stream's key.
        metadata_prefix, field_prefix: what begins the names of the fields with metadata (id,
            api_name, event_name, version) and of those with an event's data.
        encode, decode: a field's value to text, and back.
    """

    layout: Layout = "per_event"
    suffix: str = ":stream"
    metadata_prefix: str = ""
    field_prefix: str = ":"
    encode: Callable[[Any], str] = encode_value
    decode: Callable[[str], Any] | None = None


LIGHTBUS: Final = RedisFormat(layout="per_api")
DOCUMENTED: Final = RedisFormat(suffix="", metadata_prefix=":", field_prefix="")
