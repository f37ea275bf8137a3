"""Announcements of nodes: the TXT record of RFC 6763.

    txtvers=1  id=<node id>  [name=<text>]  [server=1]  [slot=<number>]
    a0=tcp://<IP address>:<port>  ..  a7=...

The name of the instance is the node ID. Every machine on the network can read and send
announcements, so parsing is strict and all sizes are limited.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import AddressError, ConfigError
from parley._node.transport.address import Address

SERVICE: Final = "_parley._tcp.local."
VERSION: Final = b"1"
SERVER: Final = b"1"  # a server of a federation (docs/protocol.md, section 19)
MOST_ADDRESSES: Final = 8
LONGEST_NAME: Final = 63  # bytes
LONGEST_TEXT: Final = 1_300  # bytes that fit into one packet (RFC 6763, section 6.2)

_SLOT: Final = re.compile(rb"[1-9][0-9]{0,3}")
_KEYS: Final = tuple(f"a{number}" for number in range(MOST_ADDRESSES))


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node that announced itself on the local network, unverified.

    `addresses` contains at most 8 addresses, each with the node ID, which the handshake verifies.
    `name` is arbitrary text and may contain control characters. `server` is True if the node claims
    to be a server of a federation. `slot` is the number under which it waits for a short code
    (docs/protocol.md, section 21), or None.

    Example:

        from parley.discovery import FoundNode

        def show(found: FoundNode) -> None:
            print(found.node_id, found.name, *found.addresses)
    """

    node_id: NodeId
    name: str
    addresses: tuple[str, ...]
    server: bool = False
    slot: int | None = None


def require_name(name: str) -> None:
    """Raise ConfigError unless a node may announce itself under this name."""
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        shown = ascii(name)[:80]
        raise ConfigError(f"invalid name {shown}: longer than {LONGEST_NAME} bytes of UTF-8")
    if not name.isprintable():
        raise ConfigError(f"invalid name {name!a}: control characters are not allowed")


def reachable(addresses: Iterable[Address], interfaces: Iterable[str]) -> list[str]:
    """Return at most 8 addresses at which other nodes can dial a node that listens at `addresses`.

    `interfaces` are this machine's IP addresses; they replace an unspecified listening address.
    Loopback addresses are returned only if there are no others. Unix sockets, host names and
    link-local IPv6 addresses are left out.
    """
    local = [address for address in map(_ip, interfaces) if address is not None]
    found: dict[str, bool] = {}  # in order; True for loopback addresses
    for address in addresses:
        host = _ip(address.host) if address.scheme == "tcp" else None
        if host is None:
            continue
        hosts = [host]
        if host.is_unspecified:
            hosts = [address for address in local if address.version == host.version]
        for ip in hosts:
            if _is_dialled(ip):
                found[Address("tcp", str(ip), address.port).place] = ip.is_loopback
    widely = [place for place, is_loopback in found.items() if not is_loopback]
    return (widely or list(found))[:MOST_ADDRESSES]


def is_on_loopback(places: Iterable[str]) -> bool:
    """Return whether only programs on this machine can dial all of these."""
    hosts = (_ip(Address.parse(place).host) for place in places)
    return all(host is not None and host.is_loopback for host in hosts)


def properties(
    node_id: NodeId,
    name: str,
    places: Iterable[str],
    *,
    server: bool = False,
    slot: int | None = None,
) -> dict[str, str]:
    said = {"txtvers": VERSION.decode(), "id": node_id.text}
    if name:
        said["name"] = name
    if server:
        said["server"] = SERVER.decode()
    if slot is not None:
        said["slot"] = str(slot)
    return said | dict(zip(_KEYS, places, strict=False))


def is_instance(name: str) -> bool:
    """Return whether an instance's name is the text of a node ID."""
    try:
        NodeId.parse(name)
    except IdentityError:
        return False
    return True


def read_announcement(instance: str, text: bytes) -> FoundNode | None:
    """Parse the TXT record of an instance.

    Returns None if it isn't an announcement, is longer than 1,300 bytes, or has no address. Unknown
    keys are ignored.
    """
    if len(text) > LONGEST_TEXT:
        return None
    if not is_instance(instance):
        return None
    node_id = NodeId.parse(instance)
    said = dict(_strings(text))
    if said.get("txtvers") != VERSION or said.get("id") != instance.encode():
        return None
    addresses = dict.fromkeys(_addresses(said, node_id))
    if not addresses:
        return None
    server = said.get("server") == SERVER
    name, slot = _name(said.get("name", b"")), _slot(said.get("slot", b""))
    return FoundNode(node_id, name, tuple(addresses), server, slot)


def _strings(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield keys and values; only the first of a repeated key counts (RFC 6763, section 6.4)."""
    seen = set()
    at = 0
    while at < len(text):
        size = text[at]
        key, mark, value = text[at + 1 : at + 1 + size].partition(b"=")
        at += 1 + size
        with suppress(UnicodeDecodeError):
            name = key.decode("ascii").lower()
            if mark and name not in seen:
                seen.add(name)
                yield name, value


def _addresses(said: dict[str, bytes], node_id: NodeId) -> Iterator[str]:
    for key in _KEYS:
        try:
            address = Address.parse(said.get(key, b"").decode("ascii"))
        except (UnicodeDecodeError, AddressError):
            continue
        host = _ip(address.host) if address.scheme == "tcp" else None
        # Ignore host names: an attacker could make this node resolve any name.
        if host is not None and address.port and _is_dialled(host):
            yield str(address.with_node_id(node_id))


def _name(value: bytes) -> str:
    try:
        return value.decode() if len(value) <= LONGEST_NAME else ""
    except UnicodeDecodeError:
        return ""


def _slot(value: bytes) -> int | None:
    return int(value) if _SLOT.fullmatch(value) else None


def _is_dialled(host: IPv4Address | IPv6Address) -> bool:
    """Return whether it is a unicast address that isn't link-local."""
    of_a_link = host.version == 6 and host.is_link_local
    return not (host.is_unspecified or host.is_multicast or of_a_link)


def _ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
