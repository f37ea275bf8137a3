"""Parsing of TXT records, including those that an attacker made."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.identity import NodeId
from parley._node.discovery.announcement import (
    LONGEST_TEXT,
    MOST_ADDRESSES,
    is_on_loopback,
    properties,
    reachable,
    read_announcement,
    require_name,
)
from parley._node.errors import ConfigError
from parley._node.transport.address import Address
from tests.sweep import sweep

ID = NodeId(bytes(range(32)))
HERE = ["127.0.0.1", "192.0.2.7", "::1", "fd00::7", "fe80::7", "2001:db8::7"]


def text(*strings: str | bytes) -> bytes:
    """Return a TXT record of these strings."""
    encoded = [one.encode() if isinstance(one, str) else one for one in strings]
    return b"".join(bytes([len(one)]) + one for one in encoded)


def announced(*strings: str | bytes) -> bytes:
    return text("txtvers=1", f"id={ID}", *strings)


def test_announcements_can_be_parsed() -> None:
    places = ["tcp://192.0.2.7:7000", "tcp://[2001:db8::7]:7001"]
    said = properties(ID, "küche", places)
    found = read_announcement(ID.text, text(*(f"{key}={value}" for key, value in said.items())))
    assert found is not None
    assert (found.node_id, found.name) == (ID, "küche")
    assert found.addresses == tuple(f"{place}#{ID}" for place in places)


@pytest.mark.parametrize(
    ("listeners", "places"),
    [
        (["tcp://192.0.2.7:1"], ["tcp://192.0.2.7:1"]),
        (["tcp://0.0.0.0:1"], ["tcp://192.0.2.7:1"]),
        (["tcp://[::]:1"], ["tcp://[fd00::7]:1", "tcp://[2001:db8::7]:1"]),
        (["tcp://127.0.0.1:1", "tcp://192.0.2.7:2"], ["tcp://192.0.2.7:2"]),
        (["tcp://127.0.0.1:1", "tcp://[::1]:1"], ["tcp://127.0.0.1:1", "tcp://[::1]:1"]),
        (["unix:///run/x", "tcp://name.example:1", "tcp://[fe80::7]:1"], []),
        (["tcp://192.0.2.7:1", "tcp://192.0.2.7:1"], ["tcp://192.0.2.7:1"]),
    ],
)
def test_where_others_can_dial(listeners: list[str], places: list[str]) -> None:
    assert reachable(map(Address.parse, listeners), HERE) == places


def test_only_so_many_addresses_are_announced() -> None:
    listeners = [Address.parse(f"tcp://192.0.2.7:{port}") for port in range(1, 20)]
    places = reachable(listeners, HERE)
    assert places == [f"tcp://192.0.2.7:{port}" for port in range(1, MOST_ADDRESSES + 1)]
    longest = ["tcp://[2001:db8:1111:2222:3333:4444:5555:6666]:65535"] * MOST_ADDRESSES
    said = properties(ID, "n" * 63, longest, server=True)
    record = text(*(f"{key}={value}" for key, value in said.items()))
    assert len(record) <= LONGEST_TEXT


def test_loopback_addresses() -> None:
    assert is_on_loopback(["tcp://127.0.0.1:1", "tcp://[::1]:1"])
    assert not is_on_loopback(["tcp://127.0.0.1:1", "tcp://192.0.2.7:1"])


@pytest.mark.parametrize("name", ["n" * 64, "ü" * 32, "\x1b[2J", "a\nb", "\u202e"])
def test_a_name_that_does_not_do(name: str) -> None:
    with pytest.raises(ConfigError, match="invalid name"):
        require_name(name)


ADDRESS = "a0=tcp://192.0.2.7:7000"


@sweep(
    "record",
    [
        b"",
        text("txtvers=1", ADDRESS),
        text("txtvers=2", f"id={ID}", ADDRESS),
        text("txtvers=1", f"id={NodeId(bytes(32))}", ADDRESS),
        announced(),
        announced("a0=tcp://name.example:7000"),
        announced("a0=unix:///run/x"),
        announced("a0=tcp://192.0.2.7:0"),
        announced("a0=tcp://0.0.0.0:7000"),
        announced("a0=tcp://224.0.0.251:7000"),
        announced("a0=tcp://[fe80::1%eth0]:7000"),
        announced("a0=tcp://192.0.2.7:7000\x1b"),
        announced("a8=tcp://192.0.2.7:7000"),
        announced(ADDRESS, *(["x" * 255] * 5)),
        announced()[:-1],
    ],
)
def test_invalid_announcements(record: bytes) -> None:
    assert read_announcement(ID.text, record) is None


@pytest.mark.parametrize("instance", ["kitchen", ID.text.upper(), ID.text[:-1], "\x1b[2J", ""])
def test_an_instance_that_is_not_named_by_its_id(instance: str) -> None:
    assert read_announcement(instance, announced(ADDRESS)) is None


def test_a_server_says_so() -> None:
    for server in (True, False):
        said = properties(ID, "", ["tcp://192.0.2.7:7000"], server=server)
        found = read_announcement(ID.text, text(*(f"{key}={value}" for key, value in said.items())))
        assert found is not None
        assert found.server is server
    found = read_announcement(ID.text, announced("server=yes", ADDRESS))
    assert found is not None
    assert not found.server


def test_unknown_entries_are_ignored() -> None:
    name = b"name=" + b"\xff" * 8
    strange = announced("unknown", "=x", b"\xff=x", name, "a0=no", "A1=tcp://192.0.2.7:1", "a1=x")
    found = read_announcement(ID.text, strange)
    assert found is not None
    assert (found.name, found.addresses) == ("", (f"tcp://192.0.2.7:1#{ID}",))
    long = read_announcement(ID.text, announced("name=" + "n" * 64, ADDRESS))
    assert long is not None
    assert long.name == ""


@given(st.lists(st.binary(max_size=255), max_size=5), st.binary(max_size=60))
def test_no_record_raises_anything(strings: list[bytes], rest: bytes) -> None:
    for record in (text(*strings) + rest, announced(ADDRESS, *strings) + rest):
        found = read_announcement(ID.text, record)
        places = chain.from_iterable([found.addresses] if found else [])
        assert all(Address.parse(place).node_id == ID for place in places)


@pytest.mark.parametrize(
    ("said", "slot"),
    [
        ("1", 1),
        ("9999", 9_999),
        ("0", None),
        ("07", None),
        ("10000", None),
        ("7x", None),
        ("", None),
    ],
)
def test_the_slot_of_a_short_code(said: str, slot: int | None) -> None:
    found = read_announcement(ID.text, announced(f"slot={said}", ADDRESS))
    assert found is not None
    assert found.slot == slot
    if slot is not None:
        assert properties(ID, "", [], slot=slot)["slot"] == said
