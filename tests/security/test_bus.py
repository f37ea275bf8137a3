"""The bus against hostile data and schemas, and its handling of passwords.

See docs/threat-model.md, B5, B6 and B9. Names and files: tests/node/bus.
"""

import socket
from pathlib import Path

import anyio
import pytest

from parley._node.bus.address import open_bus, open_store
from parley._node.bus.data import Schemas, decode_body
from parley._node.bus.errors import BusUnavailableError, InvalidEventError
from parley._node.errors import ConfigError, ParleyError

PASSWORD = "correct-horse"


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
            with pytest.raises(ConfigError, match="an external schema"):
                Schemas().add("a.b", schema)


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
