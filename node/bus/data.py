"""The data of events: JSON objects (RFC 8259), optionally validated against JSON schemas.

NaN and infinities are rejected. Schemas are checked when they are added, and are never downloaded.
`jsonschema` is imported with the first schema.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from parley._node.bus.errors import InvalidEventError, SchemaViolationError
from parley._node.bus.identifiers import split_name
from parley._node.errors import ConfigError, ParleyError, codec_fault
from parley._node.logs import needs_extra, one_line

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Data: TypeAlias = Mapping[str, Any]

_DECODER: Final = json.JSONDecoder()
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# The prefix of the text that a store returns for unreadable data. The reason, a colon and the
# original follow. The result is not valid JSON.
UNREADABLE: Final = "unreadable: "
# Field names must be exactly of this type.
_TEXT: Final = frozenset((str,))


def encode_value(value: object) -> str:
    """Encode one value as JSON.

    Raises:
        InvalidEventError: the value cannot be encoded.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the data is not JSON: {codec_fault(error)}") from error


def encode_body(data: object, largest: int) -> str:
    """Encode an event's data as JSON of at most `largest` bytes of UTF-8.

    Raises:
        InvalidEventError: it is not a mapping of text to JSON values, or it is too long.
    """
    # Check `dict` first, because isinstance with Mapping is slow.
    if not isinstance(data, (dict, Mapping)) or not _TEXT.issuperset(map(type, data)):
        kind = type(data).__name__
        raise InvalidEventError(
            f"cannot publish {kind}: "
            + ("a key isn't a str" if isinstance(data, Mapping) else "the data must be a mapping")
        )
    try:
        body = _ENCODER.encode(data if type(data) is dict else dict(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the data is not JSON: {codec_fault(error)}") from error
    try:
        size = len(body if body.isascii() else body.encode())
    except UnicodeEncodeError as error:
        raise InvalidEventError(
            "the data has text that is not Unicode: a lone surrogate"
        ) from error
    if size > largest:
        raise InvalidEventError(
            f"cannot publish {size:,} bytes of data: max_event_bytes is {largest:,}"
        )
    return body


def decode_body(body: str | bytes) -> dict[str, Any]:
    """Decode the data of an event.

    Raises:
        InvalidEventError: it is not a JSON object, or the store could not read it.
    """
    try:
        if type(body) is str and body.startswith("{"):
            parsed: dict[str, Any]
            parsed, end = _DECODER.raw_decode(body)  # Takes half the time of `loads`.
            if end == len(body):
                return parsed
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        if isinstance(body, str) and body.startswith(UNREADABLE):
            raise InvalidEventError(body.partition(": ")[2].partition(": ")[0]) from error
        raise InvalidEventError(f"the data is not JSON: {codec_fault(error)}") from error
    if not isinstance(data, dict):
        raise InvalidEventError(f"the data is JSON, but not an object: {type(data).__name__}")
    return data


When = Literal["publish", "consume", "both"]

ALL_OF_API: Final = ".*"
# The most characters of an error, which shows the data.
LONGEST_TEXT: Final = 300
# Names whose schemas are cached.
REMEMBERED: Final = 1_024


class _Schema(NamedTuple):
    validator: "Validator"
    publishing: bool
    consuming: bool


class Schemas:
    """The schemas of one bus, by `API.EVENT` or, for all events of an API, `API.*`.

    An event with both schemas must satisfy both.
    """

    __slots__ = ("_found", "_schemas", "is_empty")

    def __init__(self) -> None:
        self._schemas: dict[str, _Schema] = {}
        self._found: dict[str, tuple[_Schema, ...]] = {}
        self.is_empty = True

    def add(self, name: str, schema: Mapping[str, Any] | bool, validate: When = "both") -> None:
        """Add a schema for the events of a name or an API (any draft; by default 2020-12).

        Raises:
            ParleyError: the name already has a schema.
            InvalidEventError: the name is invalid.
            ConfigError: the schema is invalid or refers to an external one, or `jsonschema` is not
                installed.
        """
        split_name(name[:-1] + "_" if name.endswith(ALL_OF_API) else name)
        if name in self._schemas:
            raise ParleyError(f"cannot set a schema for {name!r}: it already has one")
        if validate not in ("publish", "consume", "both"):
            raise ConfigError(f"invalid validate {validate!r}: it must be publish, consume or both")
        validator = _validator(name, schema)
        self._schemas[name] = _Schema(validator, validate != "consume", validate != "publish")
        self.is_empty = False
        self._found.clear()

    def check_published(self, name: str, data: Any) -> None:
        """Raise SchemaViolationError unless the data may be published."""
        for schema in self._of(name):
            if schema.publishing:
                _check(name, schema.validator, data)

    def check_consumed(self, name: str, data: Any) -> None:
        """Raise SchemaViolationError unless the data may be delivered."""
        for schema in self._of(name):
            if schema.consuming:
                _check(name, schema.validator, data)

    def _of(self, name: str) -> tuple[_Schema, ...]:
        found = self._found.get(name)
        if found is None:
            wanted = (name, name.rpartition(".")[0] + ALL_OF_API)
            found = tuple(self._schemas[one] for one in wanted if one in self._schemas)
            if len(self._found) < REMEMBERED:
                self._found[name] = found
        return found


def _validator(name: str, schema: Mapping[str, Any] | bool) -> "Validator":
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing import Registry
        from referencing.exceptions import NoSuchResource, Unresolvable
        from referencing.jsonschema import UnknownDialect, specification_with
    except ImportError as error:
        raise ConfigError(needs_extra("a schema", "bus")) from error
    if not isinstance(schema, Mapping | bool):
        raise ConfigError(
            f"invalid schema for {name!r}: it must be a mapping or a bool, "
            f"not {type(schema).__name__}"
        )
    contents: Any = schema if isinstance(schema, bool) else dict(schema)
    kind = validator_for(contents, default=Draft202012Validator)
    try:
        kind.check_schema(contents)
        dialect = kind.META_SCHEMA.get("$schema") or kind.META_SCHEMA.get("$id", "")
        resource = specification_with(dialect).create_resource(contents)
        # Without an empty registry, jsonschema would download references.
        registry: Registry[Any] = Registry()
        base = resource.id() or ""
        resolver = registry.with_resource(base, resource).crawl().resolver(base)
        _check_references(resource, resolver)
    except SchemaError as error:
        raise ConfigError(
            f"invalid schema for {name!r}: {error.json_path}: {error.message}"
        ) from error
    except (Unresolvable, NoSuchResource, UnknownDialect) as error:
        text = f"invalid schema for {name!r}: it refers to an external schema: {error}"
        raise ConfigError(one_line(text)) from error
    except RecursionError as error:
        raise ConfigError(f"invalid schema for {name!r}: it is nested too deeply") from error
    return kind(contents, registry=registry)


def _check_references(resource: Any, resolver: Any) -> None:
    """Resolve every reference in a resource and its subresources."""
    if isinstance(resource.contents, Mapping):
        for keyword in ("$ref", "$dynamicRef"):
            reference = resource.contents.get(keyword)
            if isinstance(reference, str):
                resolver.lookup(reference)
    for below in resource.subresources():
        _check_references(below, resolver.in_subresource(below))


def _check(name: str, validator: "Validator", data: Any) -> None:
    from jsonschema.exceptions import best_match

    try:
        error = best_match(validator.iter_errors(data))
    except RecursionError:
        raise SchemaViolationError(name, "", "it is nested too deeply") from None
    if error is not None:
        text = one_line(error.message)
        if len(text) > LONGEST_TEXT:
            text = text[: LONGEST_TEXT - 3] + "..."
        raise SchemaViolationError(name, error.json_path, text)
