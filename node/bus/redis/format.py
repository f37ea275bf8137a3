"""How events look in Redis: names of streams, fields, and encodings, for each API.

One rule: what Lightbus 1.1.2 writes is what `RedisFormat()` writes; the format its documentation
describes is `DOCUMENTED`. Both are understood when reading. Speaks to no server.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Literal

from node.bus.body import encode_value
from node.bus.errors import InvalidEventError
from node.bus.model import NewEvent, StoredEvent
from node.bus.names import ALL, api_of, split_name
from node.errors import ConfigError
from node.protocol.typed import check_types

Layout = Literal["per_event", "per_api"]

# Prefixes whose names of metadata are remembered.
REMEMBERED: Final = 64
# Words of one XADD in a script of ours: Lua hands over 8,000 values at most.
MOST_FIELDS: Final = 3_500
# What a body begins with that cannot be read; no JSON begins so.
UNREADABLE: Final = "unreadable fields: "

# How metadata and data begin as Lightbus writes them, and as its documentation has it.
_KNOWN: Final = (("", ":"), (":", ""))
_METADATA: Final = ("id", "api_name", "event_name", "version")


# As Lightbus has it: spaces, sorted names, ASCII; but NaN and infinities are refused.
_LIGHTBUS_JSON: Final = json.JSONEncoder(allow_nan=False, sort_keys=True)


def lightbus_json(value: object) -> str:
    """One value as JSON, with the very bytes that Lightbus writes.

    Raises:
        InvalidEventError: JSON has no such value.
    """
    try:
        return _LIGHTBUS_JSON.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the data is not JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFormat:
    """The format of one API's streams.

    Attributes:
        layout: a stream for each event (`auth.user_registered`) or for the API (`auth.*`).
        suffix: what ends the name of a stream's key.
        metadata_prefix, field_prefix: what begins the names of the fields with metadata (id,
            api_name, event_name, version) and of those with an event's data; they differ.
        encode, decode: a field's value to text, and back; as they are: JSON. What `encode`
            raises is passed on; whatever `decode` raises makes an event unreadable.
    """

    layout: Layout = "per_event"
    suffix: str = ":stream"
    metadata_prefix: str = ""
    field_prefix: str = ":"
    encode: Callable[[Any], str] = lightbus_json
    decode: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        if self.metadata_prefix == self.field_prefix:
            raise ConfigError("metadata_prefix and field_prefix must differ")

    def key(self, name: str) -> str:
        """The key of the stream that has the events called `name` (`API.EVENT`, or `API.*`).

        Raises:
            InvalidEventError: it is no such name.
        """
        if name.endswith(ALL):
            api_of(name)
            return name + self.suffix
        api, _ = split_name(name)
        return (api + ALL if self.layout == "per_api" else name) + self.suffix

    def name(self, key: str) -> str | None:
        """The name of the stream with this key: `API.EVENT`, `API.*`; None: it is not ours."""
        name = key.removesuffix(self.suffix) if key.endswith(self.suffix) else ""
        try:
            return name if self.key(name) == key else None
        except InvalidEventError:
            return None

    def fields(self, event: NewEvent, message_id: str) -> list[str]:
        """The names and values of an entry, in Lightbus's order: metadata, then data.

        Raises:
            InvalidEventError: a field cannot be told from metadata, or there are more than 3,500
                names and values.
        """
        api, name = split_name(event.name)
        id, api_name, event_name, version = _metadata(self.metadata_prefix)
        words = [id, message_id, api_name, api, event_name, name, version, str(event.version)]
        for field, value in event.data.items():
            word = self.field_prefix + field
            if not _is_data(word, self.metadata_prefix, self.field_prefix):
                raise InvalidEventError(f"a field cannot be called {field!r} in this format")
            words += (word, self.encode(value))
        if len(words) > MOST_FIELDS:
            raise InvalidEventError(f"{len(event.data):,} fields are too many for this format")
        text = "".join(words)
        try:
            _ = text.isascii() or text.encode()
        except UnicodeEncodeError as error:
            raise InvalidEventError("the data has text that is no Unicode") from error
        return words

    def read(self, name: str, id: str, fields: Sequence[bytes]) -> "StoredEvent | Skipped":
        """The event that an entry of the stream of `name` is, or why it is none.

        In a stream of one event, that event is what each entry is, whatever its metadata say.
        """
        if not any(fields):
            return Skipped.EMPTY
        pairs = [
            (_text(fields[index]), fields[index + 1]) for index in range(0, len(fields) - 1, 2)
        ]
        for prefixes in ((self.metadata_prefix, self.field_prefix), *_KNOWN):
            names = _metadata(prefixes[0])
            found = {names[field]: _text(value) for field, value in pairs if field in names}
            if len(found) == len(_METADATA) and all(found.values()):
                break
        else:
            return Skipped.FOREIGN
        version = found["version"]
        if not (version.isascii() and version.isdecimal() and len(version) < 10):
            return Skipped.FOREIGN
        stored = f"{found['api_name']}.{found['event_name']}"
        if name.endswith(ALL):
            name = stored
        elif self.layout == "per_api" and stored != name:
            return Skipped.OTHER
        body = self._body(
            [
                (field.removeprefix(prefixes[1]), value)
                for field, value in pairs
                if _is_data(field, *prefixes)
            ]
        )
        return StoredEvent(id, name, body, found["id"], int(version))

    def _body(self, pairs: list[tuple[str, bytes]]) -> str:
        members = []
        try:
            for field, value in pairs:
                text = value.decode()
                if self.decode is None:
                    json.loads(text)  # which has to be JSON by itself, not only in its place
                else:
                    text = encode_value(self.decode(text))
                members.append(f"{encode_value(field)}:{text}")
        except Exception:  # `decode` is somebody else's
            return UNREADABLE + ", ".join(f"{field}={_text(value)}" for field, value in pairs)
        return "{" + ",".join(members) + "}"


class Skipped(Enum):
    """Why an entry is no event to be handed out: it is acknowledged and passed over."""

    EMPTY = "empty, as Lightbus makes streams"
    OTHER = "another event of the same API"
    FOREIGN = "no event in Lightbus's format"


def _is_data(field: str, metadata_prefix: str, field_prefix: str) -> bool:
    """Whether a field is of the event's data: it begins so, and not longer as metadata do."""
    if not field.startswith(field_prefix) or field in _metadata(metadata_prefix):
        return False
    return len(metadata_prefix) <= len(field_prefix) or not field.startswith(metadata_prefix)


@lru_cache(REMEMBERED)
def _metadata(prefix: str) -> Mapping[str, str]:
    """The fields with metadata, in Lightbus's order, and what each is."""
    return {prefix + metadata: metadata for metadata in _METADATA}


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


LIGHTBUS: Final = RedisFormat(layout="per_api")
DOCUMENTED: Final = RedisFormat(suffix="", metadata_prefix=":", field_prefix="")
