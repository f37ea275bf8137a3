"""Addresses at which a node listens or is dialled, with the expected node ID.

An `Address` is always valid and has one canonical text, because it is also a key in the file of
known peers.

    tcp://host:port[#node ID]    host: a name, an IPv4 address, or [an IPv6 address]
    unix:///path[#node ID]       path: absolute, percent-encoded as in RFC 3986
    memory://name[#node ID]      name: a word, of a node in the same event loop
    via://host:port/server[/home]#node ID
                                 through a tunnel (docs/protocol/federation.md section 19)
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, Literal
from urllib.parse import quote, unquote_to_bytes

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import AddressError

Scheme = Literal["tcp", "unix", "memory", "via"]

MAX_TEXT_SIZE: Final = 1_024
MAX_PORT: Final = 65_535
MAX_HOST_SIZE: Final = 253  # RFC 1035, section 2.3.4, as text
MAX_PATH_SIZE: Final = 107  # bytes; Linux's sun_path has 108, the last of which is zero

_SHOWN: Final = 120  # characters of an address in an error
_NO_SCHEME: Final = "expected tcp://, unix:// or via://"
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_ZONE: Final = re.compile(r"[A-Za-z0-9._-]{1,15}")  # Linux: IFNAMSIZ is 16, with a zero
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Not escaped in a path. Commas and blanks are, because lines of known peers can't contain them.
_PATH_SAFE: Final = "/:@+="


@dataclass(frozen=True, slots=True)
class Address:
    """An address: `host` and `port` for tcp and via, `path` for unix and memory (the name). A via
    address also has `server` and, if the node isn't a server itself, the `home` server of its
    account.

    Port 0 lets the system choose one. `node_id` is the expected ID, or None.

    Raises:
        AddressError: the parts don't fit together.
    """

    scheme: Scheme
    host: str = ""
    port: int = 0
    path: str = ""
    node_id: NodeId | None = None
    server: NodeId | None = None
    home: NodeId | None = None

    def __post_init__(self) -> None:
        if (self.server is not None) is not (self.scheme == "via"):
            server = "no server" if self.server is None else f"the server {self.server}"
            raise AddressError(
                f"a {self.scheme} address has {server}; via addresses have a server, others don't"
            )
        if self.home is not None and self.server is None:
            raise AddressError(f"the home {self.home} requires a server")
        if self.scheme in ("tcp", "via"):
            if self.path:
                raise AddressError(f"a {self.scheme} address has no path, not {self.path!r}")
            # One canonical text for each host. Otherwise a changed case would be a new name, and
            # trust on first use would accept any node there.
            object.__setattr__(self, "host", _canonical_host(self.host))
            if not 0 <= self.port <= MAX_PORT:
                raise AddressError(
                    f"the port is {self.port}; it must be a number from 0 to {MAX_PORT}"
                )
        elif self.scheme in ("unix", "memory"):
            if self.host or self.port:
                raise AddressError(
                    f"a {self.scheme} address has neither host nor port, not "
                    f"{ascii(self.host)[:80]} and {self.port}"
                )
            if self.scheme == "unix":
                _require_path(self.path)
            elif not _NAME.fullmatch(self.path):
                raise AddressError(
                    f"{ascii(self.path)[:100]} is not the name of a memory address; use 1 to 64 "
                    "letters, digits, '.', '_' and '-'"
                )
        else:
            raise AddressError(_NO_SCHEME)

    @classmethod
    @lru_cache(maxsize=256)  # the same few are dialled again and again
    def parse(cls, text: str) -> "Address":
        """Parse an address in any of its forms; raises AddressError."""
        try:
            return cls._parse(text)
        except AddressError as error:
            raise AddressError(f"cannot use the address {_shown(text)}: {error}") from error

    @classmethod
    def _parse(cls, text: str) -> "Address":
        if len(text) > MAX_TEXT_SIZE:
            raise AddressError(
                f"it has {len(text):,} characters; an address has at most {MAX_TEXT_SIZE:,}"
            )
        if not text.isprintable():
            raise AddressError("it has a control character")
        scheme, mark, rest = text.partition("://")
        if not mark or scheme not in ("tcp", "unix", "memory", "via"):
            raise AddressError(_NO_SCHEME)
        # Checked first, and without the text in the error, because it may be a password.
        if "@" in rest and scheme != "unix":
            raise AddressError("a user or password is not allowed; remove them")
        rest, mark, fragment = rest.partition("#")
        node_id = _node_id(fragment) if mark else None
        if "?" in rest:
            raise AddressError("a query is not allowed; write ? in a path as %3F")
        if scheme == "unix":
            return cls("unix", path=_decoded_path(rest), node_id=node_id)
        if scheme == "memory":
            return cls("memory", path=rest, node_id=node_id)
        server = home = None
        if scheme == "via":
            rest, server, home = _servers(rest)
        host, port = _host_and_port(rest)
        return cls("via" if server else "tcp", host, port, "", node_id, server, home)

    @classmethod
    def parse_web(cls, text: str) -> "Address":
        """Parse `HOST:PORT` or `tcp://HOST:PORT`, where HTTP is served; raises AddressError."""
        address = cls.parse(text if "://" in text else f"tcp://{text}")
        if address.scheme != "tcp" or address.node_id is not None:
            raise AddressError(f"cannot serve HTTP on {_shown(text)}: give HOST:PORT")
        return address

    def with_node_id(self, node_id: NodeId) -> "Address":
        return self if self.node_id == node_id else replace(self, node_id=node_id)

    def without_node_id(self) -> "Address":
        """Return the address as it is stored in the file of known peers."""
        return replace(self, node_id=None)

    def with_port(self, port: int) -> "Address":
        if self.scheme != "tcp":
            raise AddressError(f"cannot give {self} the port {port}: only tcp addresses have one")
        return replace(self, port=port)

    @property
    def of_server(self) -> "Address":
        """The address of the server of a via address."""
        return Address("tcp", self.host, self.port, node_id=self.server)

    @property
    def on_the_way(self) -> frozenset[NodeId]:
        """The IDs of the servers of a via address."""
        return frozenset(one for one in (self.server, self.home) if one is not None)

    @property
    def place(self) -> str:
        """The text of `without_node_id`."""
        if self.scheme == "unix":
            return f"unix://{quote(self.path, safe=_PATH_SAFE)}"
        if self.scheme == "memory":
            return f"memory://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        servers = [f"/{one}" for one in (self.server, self.home) if one is not None]
        return f"{self.scheme}://{host}:{self.port}{''.join(servers)}"

    def __str__(self) -> str:
        return self.place if self.node_id is None else f"{self.place}#{self.node_id}"


def _shown(text: str) -> str:
    """Return invalid text for an error, without a password."""
    if not text.startswith("unix://"):
        scheme, mark, rest = text.rpartition("://")
        rest, query, _ = rest.partition("?")
        _, at, place = rest.rpartition("@")
        text = f"{scheme}{mark}{'***' if at else ''}{at}{place}{query}{'***' if query else ''}"
    return ascii(text)[:_SHOWN]


def _node_id(text: str, where: str = "after '#'") -> NodeId:
    try:
        return NodeId.parse(text)
    except IdentityError as error:
        raise AddressError(
            f"invalid node ID {ascii(text)[:80]} {where}; expected 52 characters of base32"
        ) from error


def _servers(rest: str) -> tuple[str, NodeId, NodeId | None]:
    """Split the rest of a via address into host and port, server and home."""
    place, *ids = rest.split("/")
    if not 1 <= len(ids) <= 2:
        raise AddressError(
            f"its path has {len(ids)} parts; expected via://host:port/SERVER[/HOME]#NODE"
        )
    server, *homes = [_node_id(one, "in its path") for one in ids]
    return place, server, homes[0] if homes else None


def _host_and_port(rest: str) -> tuple[str, int]:
    if "/" in rest:
        raise AddressError("a tcp address must not have a path; remove the / and the text after it")
    if rest.startswith("["):
        host, mark, tail = rest[1:].partition("]")
        if not mark:
            raise AddressError("the bracket [ before the IPv6 address is not closed by ]")
        # Only an IPv6 address may be in brackets: `[localhost]` is an error.
        host = _canonical_ipv6(host)
        colon, port = tail[:1], tail[1:]
        if tail and colon != ":":
            raise AddressError(f"expected :port after the bracket ], got {ascii(tail)[:20]}")
    else:
        host, colon, port = rest.partition(":")
        if ":" in port:
            raise AddressError("an IPv6 address must be in brackets, as in tcp://[::1]:4000")
        if not host:
            raise AddressError("the host is missing; use 0.0.0.0 or [::] to listen on all")
    if not port:
        raise AddressError("the port is missing; write tcp://host:port")
    # `int` of very many digits would raise its own error; five digits are enough.
    if not (port.isascii() and port.isdigit()) or len(port) > 5:
        raise AddressError(
            f"the port is {ascii(port)[:20]}; it must be a number from 0 to {MAX_PORT}"
        )
    return host, int(port)


def _canonical_host(host: str) -> str:
    """Return lower case, or an IP address in its shortest form."""
    if ":" in host:
        return _canonical_ipv6(host)
    host = host.lower()
    labels = host.removesuffix(".").split(".")
    if len(host) > MAX_HOST_SIZE or not all(_LABEL.fullmatch(label) for label in labels):
        raise AddressError(f"the host {ascii(host)[:80]} is neither a host name nor an IP address")
    # A top-level domain is never a number, so 127.1 and 10.0.0.256 are mistyped IPv4 addresses,
    # which some resolvers would interpret differently.
    if labels[-1].isdigit():
        try:
            return str(IPv4Address(host))
        except AddressValueError as error:
            raise AddressError(f"the host {host!r} is not a valid IPv4 address") from error
    return host


def _canonical_ipv6(host: str) -> str:
    literal, mark, zone = host.partition("%")
    try:
        address = IPv6Address(literal)
    except AddressValueError as error:
        raise AddressError(f"the host {ascii(literal)[:80]} is not a valid IPv6 address") from error
    if mark and not _ZONE.fullmatch(zone):
        raise AddressError(
            f"{ascii(zone)[:40]} after % in the IPv6 address is not the name of an interface"
        )
    # Python 3.13 and later write these with dots. Format them here, so that all versions agree.
    mapped = address.ipv4_mapped
    return (f"::ffff:{mapped}" if mapped else str(address)) + mark + zone


def _decoded_path(rest: str) -> str:
    if bad := _BAD_ESCAPE.search(rest):
        raise AddressError(
            f"its path has {rest[bad.start() : bad.start() + 3]!a}; expected two "
            "hexadecimal digits after %; write % as %25"
        )
    try:
        return unquote_to_bytes(rest).decode("utf-8")
    except UnicodeDecodeError as error:
        raise AddressError(f"the path {ascii(rest)[:100]} is not UTF-8") from error


def _require_path(path: str) -> None:
    if not path.startswith("/"):
        raise AddressError(f"the path {ascii(path)[:100]} is not absolute; write unix:///path")
    if path.endswith("/"):
        raise AddressError(
            f"the path {ascii(path)[:100]} is a directory; give the path of a socket"
        )
    if "\0" in path:
        raise AddressError(f"the path {ascii(path)[:100]} has a zero byte")
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise AddressError(f"the path {ascii(path)[:100]} is not UTF-8") from error
    if size > MAX_PATH_SIZE:
        raise AddressError(
            f"the path has {size:,} bytes; the path of a Unix socket has at most {MAX_PATH_SIZE}"
        )
