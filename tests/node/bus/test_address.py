"""Addresses of buses."""

from traceback import format_exception

import pytest

from parley._node.bus.address import FORMATS, open_store
from parley._node.bus.config import BusConfig
from parley._node.bus.redis.format import DOCUMENTED
from parley._node.bus.redis.store import RedisStore
from parley._node.bus.sqlite.store import SqliteStore
from parley._node.errors import AddressError, ConfigError
from tests.sweep import sweep


def test_a_file() -> None:
    store, config = open_store("sqlite:///bus.db")
    assert isinstance(store, SqliteStore)
    assert config == BusConfig()


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_server(scheme: str) -> None:
    store, _ = open_store(f"{scheme}://user:word@127.0.0.1:1/3?format=documented")
    assert isinstance(store, RedisStore)


def test_a_server_at_a_socket() -> None:
    store, config = open_store("redis+unix:///run/redis.sock?db=3&service=shop")
    assert isinstance(store, RedisStore)
    assert config == BusConfig(service="shop")
    with pytest.raises(ConfigError, match="unknown setting 'db'"):
        open_store("redis://127.0.0.1:1/0?db=3")
    with pytest.raises(AddressError, match="invalid bus address: unknown scheme 'unix'"):
        open_store("unix:///run/redis.sock")  # The address of a node.


@pytest.mark.parametrize(
    "address",
    [
        "reddis://user:secret@127.0.0.1:1/0",
        # Characters that should be percent-encoded, but are not.
        *(f"redis://user:secret{mark}1secret@127.0.0.1:1/0" for mark in "/?#[\u2100"),
        "redis://user:1?2secret@127.0.0.1:1/0",
        "redis+unix://user:secret@/run/redis.sock?1secret@=1",
    ],
)
def test_no_error_shows_a_password(address: str) -> None:
    with pytest.raises((AddressError, ConfigError)) as caught:
        open_store(address)
    assert "secret" not in "".join(format_exception(caught.value))


def test_settings_in_the_query() -> None:
    given = BusConfig(max_age=60, timeout=7)
    _, config = open_store(
        "sqlite:///bus.db?service=shop&consumer=w1&max_length=none&max_age=1.5&keep_unread=false"
        "&waiting=5&format=documented",
        given,
    )
    assert config == BusConfig(
        service="shop",
        consumer="w1",
        max_length=None,
        max_age=1.5,
        keep_unread=False,
        waiting=5,
        timeout=7,
        formats={"*": DOCUMENTED},
    )


def test_every_setting_of_a_simple_kind_can() -> None:
    config = BusConfig()
    for name in set(BusConfig.__slots__) - {"formats", "clock"}:
        value = getattr(config, name)
        text = {"True": "true", "None": "none"}.get(str(value), str(value))
        _, found = open_store(f"sqlite:///bus.db?{name}={text}")
        assert getattr(found, name) == value


@pytest.mark.parametrize(
    "address",
    [
        "",
        "bus.db",
        "sqlite:bus.db",
        "sqlite://bus.db",
        "sqlite:///",
        "sqlite://",
        "http://a/b",
        "tcp://127.0.0.1:1",
        "redis://[::1",
        "nats://127.0.0.1",
    ],
)
def test_invalid_bus_addresses(address: str) -> None:
    with pytest.raises(AddressError):
        open_store(address)


@sweep(
    "query",
    [
        "depth=3",
        "max_length=many",
        "max_length=1.5",
        "max_length=0",
        "max_age=-1",
        "max_age=nan",
        "keep_unread=yes",
        "service=two%20words",
        "format=xml",
        "clock=1",
        "formats=x",
        "waiting=none",
    ],
)
def test_invalid_settings(query: str) -> None:
    with pytest.raises(ConfigError):
        open_store(f"sqlite:///bus.db?{query}")


def test_formats_have_names() -> None:
    assert len(set(map(repr, FORMATS.values()))) == len(FORMATS) == 4
