"""What the bus promises against hostile data, schemas, addresses and users of the same machine
(docs/threat-model.md, B5 to B9); what peers may do is in tests/node/remote_bus.
"""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from parley._node.bus.body import decode_body
from parley._node.bus.bus_address import open_bus, open_store
from parley._node.bus.errors import BusDamagedError, BusUnavailableError, InvalidEventError
from parley._node.bus.names import check_key, check_word, split_name
from parley._node.bus.schemas import Schemas
from parley._node.errors import ConfigError, ParleyError

PASSWORD = "correct-horse"
# Another key of Redis, a pattern of keys, a line of a terminal, a query, a path.
HOSTILE = ["a.b:stream", "a.*", "a.b\r\nDEL x", "a.b\x1b[2J", "a.b'; --", "../a.b", "a.\u202eb", ""]


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Files get the rights that are asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes_in(directory: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()]


@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"a":' * 100_000, '{"a": 1' + "0" * 100_000 + "}", "[]", '"a"', ""]
)
def test_a_body_that_is_a_bomb_or_no_object_is_refused(body: str) -> None:
    with pytest.raises(InvalidEventError):
        decode_body(body)


def test_schemas_fetch_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def connected(*_: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", connected)
    file = tmp_path / "schema.json"
    file.write_text("{}")
    for place in ("http://127.0.0.1:1/schema", file.as_uri(), "ftp://127.0.0.1/x", "other.json"):
        for schema in ({"$ref": place}, {"properties": {"a": {"$ref": place}}}):
            with pytest.raises(ConfigError, match="outside it"):
                Schemas().add("a.b", schema)


@pytest.mark.usefixtures("no_umask")
def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    async def publish() -> list[int]:
        async with open_bus(f"sqlite:///{tmp_path}/bus.db") as bus:
            await bus.publish("a.b", {})
            return modes_in(tmp_path)

    modes = anyio.run(publish)
    assert len(modes) >= 2  # its log too
    assert set(modes) == {0o600}


@pytest.mark.parametrize("content", [b"a letter", b"SQLite format 3\0" + bytes(200)])
def test_a_file_that_is_no_bus_is_not_touched(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "letter"
    file.write_bytes(content)

    async def publish() -> None:
        async with open_bus(f"sqlite:///{file}"):
            pass

    with pytest.raises(BusDamagedError):
        anyio.run(publish)
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_reach_into_nothing_else(name: str) -> None:
    with pytest.raises(InvalidEventError) as refused:
        split_name(name)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("word", ["a b", "a\r\nb", "a\x1b[2J", "\u202ea", "a" * 257, ""])
def test_words_and_keys_are_printable(word: str) -> None:
    with pytest.raises(InvalidEventError) as refused:
        check_word("group", word)
    assert str(refused.value).isprintable()
    with pytest.raises(InvalidEventError):
        check_key(word)


@pytest.mark.parametrize(
    "address",
    [
        f"redis://u:{PASSWORD}@127.0.0.1:1/no-number",
        f"redis://u:{PASSWORD}@127.0.0.1:x/0",
        f"rediss://:{PASSWORD}@127.0.0.1:1/0?nonsense=1",
        f"mysql://u:{PASSWORD}@127.0.0.1/0",
        f"sqlite://u:{PASSWORD}@host/bus.db",
    ],
)
def test_a_refused_address_keeps_its_password(address: str) -> None:
    with pytest.raises(ParleyError) as refused:
        open_store(address)
    assert PASSWORD not in str(refused.value)


def test_who_cannot_connect_keeps_the_password(caplog: pytest.LogCaptureFixture) -> None:
    address = f"redis://u:{PASSWORD}@127.0.0.1:1/0"
    seen: list[str] = []

    async def connect() -> None:
        bus = open_bus(address)
        async with bus as opened:
            seen.append(repr(opened))

    with pytest.raises(BusUnavailableError) as refused:
        anyio.run(connect)
    assert PASSWORD not in f"{refused.value} {seen} {caplog.text} {open_store(address)[0]!r}"
