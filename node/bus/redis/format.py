"""The format of events in Redis, for each API: stream names, fields and encodings.

`RedisFormat()` writes what Lightbus 1.1.2 writes, and `DOCUMENTED` what its documentation
describes. Both formats are read. Any other entry is returned as an unreadable event, not skipped.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Literal

from parley._node.bus.data import UNREADABLE, encode_value
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import ALL, api_of, split_name
from parley._node.bus.model import NewEvent, StoredEvent
from parley._node.errors import APPLICATION_ERRORS, ConfigError
from parley._node.protocol.config_types import check_types

Layout = Literal["per_event", "per_api"]

# How many prefixes have their metadata names cached.
REMEMBERED: Final = 64
# The most words of one XADD in a script, because Lua unpacks at most 8,000 values.
MOST_FIELDS: Final = 3_500
# The prefixes of the bodies of an event with unreadable data and of an entry that is not an event.
# The reason and the fields follow.
NO_DATA: Final = f"{UNREADABLE}fields that cannot be decoded: "
NO_EVENT: Final = f"{UNREADABLE}no event in Lightbus's format, "

# The prefixes of metadata and data that Lightbus writes, and those that it documents.
_KNOWN: Final = (("", ":"), (":", ""))
_METADATA: Final = ("id", "api_name", "event_name", "version")


# Like Lightbus (spaces, sorted names, ASCII), but without NaN and infinities.
_LIGHTBUS_JSON: Final = json.JSONEncoder(allow_nan=False, sort_keys=True)


def lightbus_json(value: object) -> str:
    """Encode one value as JSON with the bytes that Lightbus writes.

    Raises:
        InvalidEventError: the value cannot be encoded.
    """
    try:
        return _LIGHTBUS_JSON.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the data is not JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFormat:
    """The format of one API's streams.

    Attributes:
        layout: one stream for each event (`auth.user_registered`) or for the whole API (`auth.*`).
        suffix: the end of a stream's key.
        metadata_prefix, field_prefix: the prefixes of the fields with metadata (id, api_name,
            event_name, version) and of the fields with data. They must differ.
        json_metadata: whether metadata is written as JSON, as Lightbus documents it. Both forms are
            read.
        encode, decode: convert the value of a data field to text and back; JSON by default. Errors
            of `encode` are raised; an error of `decode` makes the event unreadable.
    """

    layout: Layout = "per_event"
    suffix: str = ":stream"
    metadata_prefix: str = ""
    field_prefix: str = ":"
    json_metadata: bool = False
    encode: Callable[[Any], str] = lightbus_json
    decode: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        if self.metadata_prefix == self.field_prefix:
            raise ConfigError(
                f"invalid metadata_prefix {self.metadata_prefix!r}: field_prefix must be different"
            )

    def key(self, name: str) -> str:
        """Return the key of the stream for the events `name` (`API.EVENT`, or `API.*`).

        Raises:
            InvalidEventError: the name is invalid.
        """
        if name.endswith(ALL):
            api_of(name)
            return name + self.suffix
        api, _ = split_name(name)
        return (api + ALL if self.layout == "per_api" else name) + self.suffix

    def name(self, key: str) -> str | None:
        """Return the name of the stream with this key, `API.EVENT` or `API.*`.

        Returns None if the key does not have this format.
        """
        name = key.removesuffix(self.suffix) if key.endswith(self.suffix) else ""
        try:
            return name if self.key(name) == key else None
        except InvalidEventError:
            return None

    def fields(self, event: NewEvent, message_id: str) -> list[str]:
        """Return the names and values of an entry in Lightbus's order: metadata, then data.

        Raises:
            InvalidEventError: a field would be mistaken for metadata, or there are more than 3,500
                names and values.
        """
        api, name = split_name(event.name)
        id, api_name, event_name, version = _metadata(self.metadata_prefix)
        words = [id, message_id, api_name, api, event_name, name, version, str(event.version)]
        if self.json_metadata:
            words[1:6:2] = map(lightbus_json, words[1:6:2])
        for field, value in event.data.items():
            word = self.field_prefix + field
            if not _is_data(word, self.metadata_prefix, self.field_prefix):
                raise InvalidEventError(
                    f"cannot publish field {field!r}: this format uses the name for metadata"
                )
            words += (word, self.encode(value))
        if len(words) > MOST_FIELDS:
            raise InvalidEventError(
                f"cannot publish {len(event.data):,} fields: this format holds "
                f"{(MOST_FIELDS - 2 * len(_METADATA)) // 2:,}"
            )
        text = "".join(words)
        try:
            _ = text.isascii() or text.encode()
        except UnicodeEncodeError as error:
            raise InvalidEventError("the data has text that is not Unicode") from error
        return words

    def read(self, name: str, id: str, fields: Sequence[bytes]) -> "StoredEvent | Skipped":
        """Return the event of an entry in the stream of `name`, or why readers skip it.

        In a stream of one event, each entry is that event, regardless of its metadata. An
        unreadable entry is returned as an event whose body is not JSON.
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
            return _no_event(name, id, "without its metadata", pairs)
        plain = _plain(found)
        if plain is None:
            return _no_event(name, id, "with metadata that cannot be read", pairs)
        version = plain["version"]
        if not (version.isascii() and version.isdecimal() and len(version) < 10):
            return _no_event(name, id, "with a version that is not a number", pairs)
        stored = f"{plain['api_name']}.{plain['event_name']}"
        if name.endswith(ALL) or (self.layout == "per_api" and stored != name):
            # Readers of one event skip other events of the API.
            if not _is_of(api_of(name), stored):
                return _no_event(name, id, "and of another API", pairs)
            if not name.endswith(ALL):
                return Skipped.OTHER
            name = stored
        body = self._body(
            [
                (field.removeprefix(prefixes[1]), value)
                for field, value in pairs
                if _is_data(field, *prefixes)
            ]
        )
        return StoredEvent(id, name, body, plain["id"], int(version))

    def _body(self, pairs: list[tuple[str, bytes]]) -> str:
        members = []
        try:
            for field, value in pairs:
                text = value.decode()
                if self.decode is None:
                    json.loads(text)  # Each value must be valid JSON by itself.
                else:
                    text = encode_value(self.decode(text))
                members.append(f"{encode_value(field)}:{text}")
        except APPLICATION_ERRORS:  # `decode` is part of the application.
            return NO_DATA + _shown(pairs)
        return "{" + ",".join(members) + "}"


class Skipped(Enum):
    """Why an entry is acknowledged and skipped."""

    EMPTY = "empty, as Lightbus makes streams"
    OTHER = "another event of the same API"


def _no_event(name: str, id: str, why: str, pairs: Sequence[tuple[str, bytes]]) -> StoredEvent:
    return StoredEvent(id, name, f"{NO_EVENT}{why}: {_shown(pairs)}")


def _shown(pairs: Sequence[tuple[str, bytes]]) -> str:
    return ", ".join(f"{field}={_text(value)}" for field, value in pairs)


def _plain(metadata: dict[str, str]) -> dict[str, str] | None:
    """Return metadata as text, or None if it cannot be read.

    Metadata is JSON if the API's name begins with a quotation mark.
    """
    if not metadata["api_name"].startswith('"'):
        return metadata
    try:
        values = {name: json.loads(value) for name, value in metadata.items()}
    except (ValueError, RecursionError):
        return None
    if not all(type(value) is int or (type(value) is str and value) for value in values.values()):
        return None
    return {
        name: str(value).encode(errors="backslashreplace").decode()
        for name, value in values.items()
    }


def _is_of(api: str, name: str) -> bool:
    try:
        return split_name(name)[0] == api
    except InvalidEventError:
        return False


def _is_data(field: str, metadata_prefix: str, field_prefix: str) -> bool:
    """Return whether a field contains data: its prefix marks data, not metadata."""
    if not field.startswith(field_prefix) or field in _metadata(metadata_prefix):
        return False
    return len(metadata_prefix) <= len(field_prefix) or not field.startswith(metadata_prefix)


@lru_cache(REMEMBERED)
def _metadata(prefix: str) -> Mapping[str, str]:
    """Map the names of metadata fields, in Lightbus's order, to their meanings."""
    return {prefix + metadata: metadata for metadata in _METADATA}


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


LIGHTBUS: Final = RedisFormat(layout="per_api")
DOCUMENTED: Final = RedisFormat(suffix="", metadata_prefix=":", field_prefix="", json_metadata=True)
DOCUMENTED_PER_API: Final = replace(DOCUMENTED, layout="per_api")
