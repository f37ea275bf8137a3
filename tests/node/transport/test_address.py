"""Tests of node/transport/address.py: canonical texts, and the error for each mistake."""

import hashlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley._crypto.identity import NodeId
from parley._node.errors import AddressError
from parley._node.transport.address import MAX_PATH_SIZE, MAX_TEXT_SIZE, Address
from tests.sweep import sweep

NODE_ID = NodeId(hashlib.sha256(b"somebody").digest())
OTHER_ID = NodeId(hashlib.sha256(b"somebody else").digest())


@sweep(
    ("text", "address"),
    [
        ("tcp://localhost:4000", Address("tcp", "localhost", 4000)),
        ("tcp://192.0.2.1:65535", Address("tcp", "192.0.2.1", 65_535)),
        ("tcp://[::1]:4000", Address("tcp", "::1", 4000)),
        ("tcp://[fe80::1%eth0]:4000", Address("tcp", "fe80::1%eth0", 4000)),
        ("tcp://[::ffff:192.0.2.1]:1", Address("tcp", "::ffff:192.0.2.1", 1)),
        ("tcp://a-b.example_1.net:0", Address("tcp", "a-b.example_1.net", 0)),
        ("tcp://example.net.:1", Address("tcp", "example.net.", 1)),
        ("unix:///run/parley.sock", Address("unix", path="/run/parley.sock")),
        ("unix:///a%20b%2Cc%23%25", Address("unix", path="/a b,c#%")),
        ("unix:///caf%C3%A9", Address("unix", path="/café")),
        (f"tcp://h:1#{NODE_ID}", Address("tcp", "h", 1, node_id=NODE_ID)),
        (f"unix:///s#{NODE_ID}", Address("unix", path="/s", node_id=NODE_ID)),
        ("memory://Room-1.a_b", Address("memory", path="Room-1.a_b")),
        (f"memory://{'x' * 64}#{NODE_ID}", Address("memory", path="x" * 64, node_id=NODE_ID)),
        (
            f"via://h:1/{OTHER_ID}#{NODE_ID}",
            Address("via", "h", 1, node_id=NODE_ID, server=OTHER_ID),
        ),
        (f"via://[::1]:1/{OTHER_ID}", Address("via", "::1", 1, server=OTHER_ID)),
        (
            f"via://h:1/{NODE_ID}/{OTHER_ID}#{NODE_ID}",
            Address("via", "h", 1, "", NODE_ID, NODE_ID, OTHER_ID),
        ),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("tcp://Example.NET:04000", "tcp://example.net:4000"),
        ("tcp://[2001:DB8:0:0::1]:1", "tcp://[2001:db8::1]:1"),
        ("tcp://[::FFFF:c000:201]:1", "tcp://[::ffff:192.0.2.1]:1"),
        ("unix:///a b", "unix:///a%20b"),
        ("unix:///%61", "unix:///a"),
        ("unix:///café", "unix:///caf%C3%A9"),
    ],
)
def test_other_spellings_become_the_one(text: str, spelling: str) -> None:
    address = Address.parse(text)
    assert str(address) == spelling
    assert Address.parse(spelling) == address


@sweep(
    ("text", "sentence"),
    [
        ("", "expected tcp://, unix:// or via://"),
        ("localhost:4000", "expected tcp://, unix:// or via://"),
        ("udp://h:1", "expected tcp://, unix:// or via://"),
        ("TCP://h:1", "expected tcp://, unix:// or via://"),
        (" tcp://h:1", "expected tcp://, unix:// or via://"),
        ("tcp:/h:1", "expected tcp://, unix:// or via://"),
        ("tcp://h", "the port is missing"),
        ("tcp://h:", "the port is missing"),
        ("tcp://[::1]", "the port is missing"),
        ("tcp://[::1]:", "the port is missing"),
        ("tcp://h:65536", "it must be a number from 0 to 65535"),
        ("tcp://h:000001", "it must be a number from 0 to 65535"),
        ("tcp://h:-1", "it must be a number from 0 to 65535"),
        ("tcp://h:+1", "it must be a number from 0 to 65535"),
        ("tcp://h:1_0", "it must be a number from 0 to 65535"),
        ("tcp://h: 1", "it must be a number from 0 to 65535"),
        ("tcp://h:\u0661", "it must be a number from 0 to 65535"),
        ("tcp://h:\u00b2", "it must be a number from 0 to 65535"),
        ("tcp://h:http", "it must be a number from 0 to 65535"),
        ("tcp://:1", "the host is missing"),
        ("tcp://", "the host is missing"),
        ("tcp://::1:4000", "an IPv6 address must be in brackets"),
        ("tcp://[::1:4000", "the bracket [ before the IPv6 address is not closed"),
        ("tcp://[::1]4000", "expected :port after the bracket ], got '4000'"),
        ("tcp://[::g]:1", "is not a valid IPv6 address"),
        ("tcp://[localhost]:1", "is not a valid IPv6 address"),
        ("tcp://[]:1", "is not a valid IPv6 address"),
        ("tcp://[::1%]:1", "is not the name of an interface"),
        ("tcp://[::1%a b]:1", "is not the name of an interface"),
        ("tcp://10.0.0.256:1", "is not a valid IPv4 address"),
        ("tcp://127.1:1", "is not a valid IPv4 address"),
        ("tcp://2130706433:1", "is not a valid IPv4 address"),
        ("tcp://a b:1", "is neither a host name nor an IP address"),
        ("tcp://a..b:1", "is neither a host name nor an IP address"),
        ("tcp://-a:1", "is neither a host name nor an IP address"),
        ("tcp://.:1", "is neither a host name nor an IP address"),
        ("tcp://bücher.example:1", "is neither a host name nor an IP address"),
        ("tcp://%61:1", "is neither a host name nor an IP address"),
        (f"tcp://{'a' * 64}:1", "is neither a host name nor an IP address"),
        (f"tcp://{'a.' * 127}:1", "is neither a host name nor an IP address"),
        ("tcp://h:1/", "a tcp address must not have a path"),
        ("memory://", "is not the name of a memory address"),
        ("memory://a/b", "is not the name of a memory address"),
        ("memory://a:1", "is not the name of a memory address"),
        ("memory://a%20b", "is not the name of a memory address"),
        (f"memory://{'x' * 65}", "is not the name of a memory address"),
        ("tcp://user:secret@h:1", "a user or password is not allowed"),
        ("tcp://user@h:1", "a user or password is not allowed"),
        ("tcp://h:1?a=b", "a query is not allowed"),
        ("unix:///s?a=b", "a query is not allowed"),
        ("tcp://h:1#", "after '#'; expected 52 characters"),
        ("tcp://h:1#abc", "after '#'; expected 52 characters"),
        (f"tcp://h:1#{NODE_ID.text.upper()}", "after '#'; expected 52 characters"),
        (f"tcp://h:1#{NODE_ID}#{NODE_ID}", "after '#'; expected 52 characters"),
        ("unix://", "is not absolute"),
        ("unix://run/s", "is not absolute"),
        ("unix://./s", "is not absolute"),
        ("unix:///", "is a directory"),
        ("unix:///run/", "is a directory"),
        ("unix:///a%00b", "has a zero byte"),
        ("unix:///a%zz", "expected two hexadecimal digits after %"),
        ("unix:///a%4", "expected two hexadecimal digits after %"),
        ("unix:///a%ff", "is not UTF-8"),
        ("unix:///" + "a" * MAX_PATH_SIZE, "has at most 107"),
        ("unix:///" + "é" * 54, "has at most 107"),
        ("tcp://h:1\n", "it has a control character"),
        ("unix:///\udcff", "it has a control character"),
        ("unix:///" + "a" * MAX_TEXT_SIZE, "it has 1,032 characters"),
        ("via://h:1", "its path has 0 parts"),
        (f"via://h:1/{NODE_ID}/{NODE_ID}/{NODE_ID}", "its path has 3 parts"),
        ("via://h:1/x", "invalid node ID 'x' in its path"),
        (f"via://h/{NODE_ID}", "the port is missing"),
        (f"via:///{NODE_ID}", "the host is missing"),
    ],
)
def test_each_mistake_has_its_sentence(text: str, sentence: str) -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(text)
    assert str(caught.value).startswith("cannot use the address ")
    assert sentence in str(caught.value)


def test_a_password_is_not_repeated() -> None:
    for text in (
        "tcp://user:secret@h:1",
        "tcp://user:se#secret@h:1",
        "tcp://h:1?password=secret",
        "redis://:secret@h:1/0",
        "http:user:secret@h",
        f"via://secret@h:1/{NODE_ID}",
    ):
        with pytest.raises(AddressError) as caught:
            Address.parse(text)
        assert "secret" not in str(caught.value)
        assert "h" in str(caught.value)


def test_an_address_is_shown_in_part_and_escaped() -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse("tcp://\x1b[2J" + "a" * 10_000)
    assert str(caught.value).startswith(r"cannot use the address 'tcp://\x1b[2Jaaa")
    assert len(str(caught.value)) < 300


def test_the_longest_path_is_read() -> None:
    path = "/" + "a" * (MAX_PATH_SIZE - 1)
    assert Address.parse(f"unix://{path}").path == path


@sweep(
    "fields",
    [
        ("udp", "h", 1),
        ("tcp", "", 1),
        ("tcp", "h", 65_536),
        ("tcp", "h", -1),
        ("tcp", "h", 1, "/s"),
        ("tcp", "a/b", 1),
        ("tcp", "::1%a]:2", 1),
        ("tcp", "h", 1, "", NODE_ID, OTHER_ID),
        ("tcp", "h", 1, "", NODE_ID, None, OTHER_ID),
        ("via", "h", 1),
        ("via", "h", 1, "/s", NODE_ID, OTHER_ID),
        ("unix",),
        ("unix", "h", 0, "/s"),
        ("unix", "", 1, "/s"),
        ("unix", "", 0, "s"),
        ("unix", "", 0, "/\udcff"),
    ],
)
def test_an_unsound_address_cannot_be_made(fields: tuple[Any, ...]) -> None:
    with pytest.raises(AddressError):
        Address(*fields)


def test_parts_are_replaced() -> None:
    address = Address.parse("tcp://h:0")
    assert str(address.with_port(7)) == "tcp://h:7"
    pinned = address.with_node_id(NODE_ID)
    assert pinned.node_id == NODE_ID
    assert pinned.with_port(7).node_id == NODE_ID
    assert pinned.with_node_id(OTHER_ID).node_id == OTHER_ID
    assert pinned.without_node_id() == address
    assert address.without_node_id() == address


def test_a_via_address_knows_where_its_server_is() -> None:
    address = Address.parse(f"via://h:1/{OTHER_ID}#{NODE_ID}")
    assert str(address.of_server) == f"tcp://h:1#{OTHER_ID}"
    assert address.place == f"via://h:1/{OTHER_ID}"
    assert address.without_node_id().with_node_id(NODE_ID) == address


def test_a_replaced_port_is_checked() -> None:
    with pytest.raises(AddressError, match="the port is 65536; it must be a number"):
        Address.parse("tcp://h:0").with_port(65_536)
    with pytest.raises(AddressError, match="cannot give unix:///s the port 1"):
        Address.parse("unix:///s").with_port(1)


node_ids = st.none() | st.binary(min_size=32, max_size=32).map(NodeId)
hosts = st.from_regex(r"[A-Za-z0-9_]{1,20}(\.[a-z]{1,9}){0,3}", fullmatch=True).filter(
    lambda host: not host.rsplit(".", 1)[-1].isdigit()
) | st.ip_addresses().map(str)
paths = (
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
    .map(lambda text: f"/{text}")
    .filter(lambda path: not path.endswith("/"))
)
addresses = st.builds(
    lambda host, port, node_id: Address("tcp", host, port, node_id=node_id),
    hosts,
    st.integers(0, 65_535),
    node_ids,
) | st.builds(lambda path, node_id: Address("unix", path=path, node_id=node_id), paths, node_ids)


@given(addresses)
def test_every_address_round_trips(address: Address) -> None:
    assert Address.parse(str(address)) == address
    # An address is also a name in a line of known peers.
    assert not set(str(address)) & set(", \t\n")
    assert str(address).isprintable()


@given(
    st.text(max_size=40)
    | st.text("tcp:/unix[]#%@?.0123456789ab", max_size=40)
    | st.text("[]#%@?.:0123456789ab/", max_size=30).map(lambda rest: f"tcp://{rest}")
    | st.text("#%@?./0123456789ab", max_size=30).map(lambda rest: f"unix:///{rest}")
)
@example("tcp://[")
@example("tcp://h:" + "9" * 5000)
def test_any_text_is_an_address_or_an_address_error(text: str) -> None:
    try:
        address = Address.parse(text)
    except AddressError:
        return
    assert Address.parse(str(address)) == address
