"""Reading and writing entries in Lightbus's formats, and entries that are not events."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.bus.data import decode_body
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.model import NewEvent, StoredEvent
from parley._node.bus.redis import format
from parley._node.bus.redis.format import (
    DOCUMENTED,
    DOCUMENTED_PER_API,
    LIGHTBUS,
    MOST_FIELDS,
    NO_DATA,
    NO_EVENT,
    RedisFormat,
    Skipped,
    lightbus_json,
)
from parley._node.errors import ConfigError
from tests.sweep import sweep

NAME = "auth.user_registered"
BARE = [b"id", b"m1", b"api_name", b"auth", b"event_name", b"user_registered", b"version", b"1"]
COLON = [b":" + word if index % 2 == 0 else word for index, word in enumerate(BARE)]
JSON = [word if index % 2 == 0 else b'"' + word + b'"' for index, word in enumerate(COLON)]
JSON[-1] = b"1"

texts = st.text(st.characters(codec="utf-8"))
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
datas = st.dictionaries(texts, values, max_size=4)
ALL_FORMATS = [RedisFormat(), LIGHTBUS, DOCUMENTED, DOCUMENTED_PER_API]
formats = st.sampled_from(ALL_FORMATS)


def event(data: dict[str, Any], name: str = NAME, version: int = 1) -> NewEvent:
    return NewEvent(name, data, json.dumps(data), version=version)


@given(datas, formats, st.integers(0, 10**9 - 1), st.text(st.characters(codec="utf-8"), min_size=1))
def test_what_is_written_is_read(
    data: dict[str, Any], form: RedisFormat, version: int, key: str
) -> None:
    if form.metadata_prefix and any(name[:1] == ":" for name in data):
        with pytest.raises(InvalidEventError, match="uses the name"):
            form.fields(event(data), key)
        return
    words = [word.encode() for word in form.fields(event(data, version=version), key)]
    for reader in ALL_FORMATS:
        found = reader.read(NAME, "5-0", words)
        assert isinstance(found, StoredEvent)
        assert found[:2] + found[3:] == ("5-0", NAME, key, version)
        assert decode_body(found.body) == data


@given(
    st.lists(st.binary(max_size=12) | st.sampled_from(BARE + COLON + JSON), max_size=20), formats
)
def test_any_entry_is_read_or_skipped(fields: list[bytes], form: RedisFormat) -> None:
    found = form.read(NAME, "5-0", fields)
    assert isinstance(found, (StoredEvent, Skipped))
    if isinstance(found, StoredEvent):
        found.body.encode()
        try:
            decode_body(found.body)
        except InvalidEventError:
            assert found.body.startswith((NO_DATA, NO_EVENT))


def test_the_bytes_are_those_of_lightbus() -> None:
    data = {"username": "admin", "b": {"z": [1, 2], "a": "ü"}, "none": None}
    assert RedisFormat().fields(event(data), "m1") == [
        *("id", "m1", "api_name", "auth", "event_name", "user_registered", "version", "1"),
        *(":username", '"admin"'),
        *(":b", '{"a": "\\u00fc", "z": [1, 2]}'),
        *(":none", "null"),
    ]
    assert DOCUMENTED.fields(event({"a": 1}), "m1") == [
        *(":id", '"m1"', ":api_name", '"auth"', ":event_name", '"user_registered"'),
        *(":version", "1", "a", "1"),
    ]


@pytest.mark.parametrize(
    ("form", "name", "key"),
    [
        (RedisFormat(), NAME, "auth.user_registered:stream"),
        (LIGHTBUS, NAME, "auth.*:stream"),
        (LIGHTBUS, "my.auth.login", "my.auth.*:stream"),
        (DOCUMENTED, NAME, NAME),
        (DOCUMENTED_PER_API, NAME, "auth.*"),
        (LIGHTBUS, "auth.*", "auth.*:stream"),
    ],
)
def test_keys(form: RedisFormat, name: str, key: str) -> None:
    assert form.key(name) == key
    found = form.name(key)
    assert found == ("my.auth.*" if name == "my.auth.login" else name) or found == "auth.*"
    for other in ("", ":stream", "a:stream", "a b.c:stream", "x.*.y:stream", "auth.other:set"):
        assert form.name(other) is None
    with pytest.raises(InvalidEventError):
        form.key("a b.*")


@pytest.mark.parametrize("fields", [[], [b"", b""]])
def test_empty_entry_of_lightbus_is_skipped(fields: list[bytes]) -> None:
    assert RedisFormat().read(NAME, "5-0", fields) is Skipped.EMPTY


@sweep(
    ("fields", "why"),
    [
        ([b"a", b"1"], "without its metadata: a=1"),
        (BARE[2:], "without its metadata: "),
        ([*BARE[:7], b""], "without its metadata: "),
        ([*BARE[:7], b"x"], "with a version that is not a number: "),
        ([*BARE[:7], b"1" * 10], "with a version that is not a number: "),
        ([*BARE[:7], "²".encode()], "with a version that is not a number: "),
        ([*JSON[:7], b"1.0"], "with metadata that cannot be read: "),
        ([b":id", b"null", *JSON[2:]], "with metadata that cannot be read: "),
        ([b":id", b'""', *JSON[2:]], "with metadata that cannot be read: "),
        ([b":id", b"m1", *JSON[2:]], "with metadata that cannot be read: "),
        ([*JSON[:3], b'"auth', *JSON[4:]], "with metadata that cannot be read: "),
        ([*JSON[:3], b"[" * 100_000, *JSON[4:]], ""),
    ],
)
@sweep("form", ALL_FORMATS)
def test_entry_that_is_no_event_is_unreadable(
    form: RedisFormat, fields: list[bytes], why: str
) -> None:
    """It is delivered as an unreadable event, which becomes a dead letter and is logged."""
    found = form.read(NAME, "5-0", fields)
    assert isinstance(found, StoredEvent)
    if why:
        assert found[:2] + found[3:] == ("5-0", NAME, None, 1)
        assert found.body.startswith(NO_EVENT + why)
        reason = "no event in Lightbus's format, " + why.partition(":")[0]
        with pytest.raises(InvalidEventError, match=f"^{reason}$"):
            decode_body(found.body)


def test_metadata_with_invalid_unicode() -> None:
    found = DOCUMENTED.read(NAME, "5-0", [b":id", b'"\\ud800"', *JSON[2:]])
    assert isinstance(found, StoredEvent)
    assert found.key == "\\ud800"


@pytest.mark.parametrize("fields", [COLON, BARE, JSON])
def test_an_event_of_another_api_is_not_lost(fields: list[bytes]) -> None:
    """Readers of this stream never request it."""
    for name in ("shop.sold", "shop.*"):
        found = DOCUMENTED_PER_API.read(name, "5-0", fields)
        assert isinstance(found, StoredEvent)
        assert found.body.startswith(NO_EVENT + "and of another API: ")


def test_other_events_of_an_api() -> None:
    for fields in (BARE, COLON, JSON):
        assert LIGHTBUS.read("auth.other", "5-0", fields) is Skipped.OTHER
    whole = LIGHTBUS.read("auth.*", "5-0", BARE)
    assert isinstance(whole, StoredEvent)
    assert whole.name == NAME
    own = RedisFormat().read("auth.other", "5-0", BARE)
    assert isinstance(own, StoredEvent)
    assert own.name == "auth.other"


@sweep("fields", [COLON, BARE, JSON])
@sweep("form", ALL_FORMATS)
def test_all_kinds_of_fields_are_read(form: RedisFormat, fields: list[bytes]) -> None:
    data = b":a" if fields is BARE else b"a"
    found = form.read(NAME, "5-0", [*fields, data, b"[1]", b"" if fields is BARE else b":", b"x"])
    assert isinstance(found, StoredEvent)
    assert decode_body(found.body) == {"a": [1]}
    assert (found.name, found.key, found.version) == (NAME, "m1", 1)


@pytest.mark.parametrize("value", [b"", b"admin", b'1,":b":2', b'"\xff"', b"{", b"[" * 100_000])
def test_invalid_json_makes_the_body_unreadable(value: bytes) -> None:
    found = RedisFormat().read(NAME, "5-0", [*BARE, b":a", value])
    assert isinstance(found, StoredEvent)
    assert found.body.startswith(f"{NO_DATA}a=")
    with pytest.raises(InvalidEventError, match="fields that cannot be decoded"):
        decode_body(found.body)
    with pytest.raises(InvalidEventError):
        decode_body(found.body)


def test_custom_encodings() -> None:
    form = RedisFormat(encode=lambda value: f"<{value}>", decode=lambda text: text[1:-1])
    words = form.fields(event({"a": "b"}), "m1")
    assert words[-2:] == [":a", "<b>"]
    found = form.read(NAME, "5-0", [word.encode() for word in words])
    assert isinstance(found, StoredEvent)
    assert decode_body(found.body) == {"a": "b"}
    broken = RedisFormat(decode=lambda text: int("x"))
    unreadable = broken.read(NAME, "5-0", [*BARE, b":a", b"1"])
    assert isinstance(unreadable, StoredEvent)
    assert unreadable.body == f"{NO_DATA}a=1"


def test_limits_and_mistakes() -> None:
    room = (MOST_FIELDS - 8) // 2
    assert len(RedisFormat().fields(event({str(n): n for n in range(room)}), "m")) == MOST_FIELDS
    with pytest.raises(InvalidEventError, match="this format holds 1,746"):
        RedisFormat().fields(event({str(n): n for n in range(room + 1)}), "m")
    with pytest.raises(InvalidEventError, match="':id'"):
        DOCUMENTED.fields(event({":id": 1}), "m")
    with pytest.raises(InvalidEventError, match="Unicode"):
        RedisFormat(encode=str).fields(event({"a": "\ud800"}), "m")
    with pytest.raises(ConfigError, match="differ"):
        RedisFormat(metadata_prefix=":")
    for value in (float("nan"), object(), {1: 2, "a": 3}):
        with pytest.raises(InvalidEventError):
            lightbus_json(value)


def test_number_of_remembered_prefixes_is_bounded() -> None:
    for number in range(format.REMEMBERED + 1):
        form = RedisFormat(metadata_prefix=f"{number}:", field_prefix="-")
        assert form.fields(NewEvent(NAME, {}, "{}"), "id")[0] == f"{number}:id"
    assert format._metadata.cache_info().currsize == format.REMEMBERED
