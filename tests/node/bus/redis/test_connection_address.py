"""Addresses of Redis servers."""

from traceback import format_exception

import pytest

from parley._node.bus.redis.connection import RedisAddress, parse_address
from parley._node.errors import AddressError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", RedisAddress()),
        ("redis://h", RedisAddress(host="h")),
        ("redis://[::1]:7/2", RedisAddress(host="::1", port=7, database=2)),
        (
            "rediss://me:p%40ss@h:7/",
            RedisAddress(host="h", port=7, username="me", password="p@ss", tls=True),
        ),
        ("redis://:word@h", RedisAddress(host="h", password="word")),
        ("unix:///a/b%20c.sock?db=3", RedisAddress(path="/a/b c.sock", database=3)),
    ],
)
def test_addresses(url: str, expected: RedisAddress) -> None:
    found = parse_address(url)
    assert found == expected
    assert found.password is None or found.password not in repr(found) + str(found)
    assert found.place.scheme == ("unix" if found.path else "tcp")


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://h:x",
        "redis://a b",
        "unix://" + "/x" * 60,
        "redis://h/a",
        "unix://",
        "unix:///a?db=-1",
        "redis://h/²",
    ],
)
def test_invalid_addresses(url: str) -> None:
    with pytest.raises(AddressError):
        parse_address(url)


@pytest.mark.parametrize("url", ["redis:/:hunter2@h", "redis://:hunter2/3@h"])
def test_misplaced_password_is_not_shown(url: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(url)
    assert "hunter2" not in "".join(format_exception(caught.value))
