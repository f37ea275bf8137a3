"""Where a node speaks the other dialects, and within which limits: the tables `[simproto]`,
`[named]` and `[relay]`.

`node.transport.gateway` decides whether an address may be listened on.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from parley._node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from parley._node.dialects.values import Rest
from parley._node.errors import ConfigError
from parley._node.protocol.typed import check_types
from parley._node.transport.address import Address

Flavour = Literal["plain", "typed"]
FLAVOURS: Final[tuple[Flavour, ...]] = get_args(Flavour)
# Of the formats that we know, those that the crate has as well.
Format = Literal["msgpack", "json", "raw"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProtoSettings:
    """How a node speaks SimProto.

    Attributes:
        listen: addresses to listen on, `tcp://host:port` or `unix:///path`; none: it does not.
        allow_insecure: whether these may be addresses that other machines can reach.
        values: the form of answers and notes that are neither bytes nor text: cbor, msgpack
            or json.
        limits: those of its connections.

    Raises:
        ConfigError: a value that is none of these. AddressError: not an address.
    """

    listen: tuple[str, ...] = ()
    allow_insecure: bool = False
    values: Rest = "cbor"
    limits: SimProtoLimits = field(default_factory=SimProtoLimits)

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSettings:
    """How a node speaks named events as the crate does.

    Attributes:
        listen: addresses to listen on, `tcp://host:port` or `unix:///path`; none: it does not.
        allow_insecure: whether these may be addresses that other machines can reach.
        flavour: which header is spoken there: plain (versions 0.14 to 0.17) or typed (from
            0.18 on).
        format: that of replies, unless their handler says otherwise: msgpack, json or raw.
        limits: those of its connections.

    Raises:
        ConfigError: a value that is none of these. AddressError: not an address.
    """

    listen: tuple[str, ...] = ()
    allow_insecure: bool = False
    flavour: Flavour = "plain"
    format: Format = "msgpack"
    limits: NamedLimits = field(default_factory=NamedLimits)

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """The event relay of `parley serve`.

    Attributes:
        listen: addresses to listen on, `tcp://host:port` or `unix:///path`; none: no relay.
        bridge: the topic of the node that the relay's broadcasts are notes of, and whose notes
            the relay broadcasts; None: no bridge.
        allow_insecure: whether these may be addresses that other machines can reach.
        feedback: whether a sender is told that its target is not connected.
        values: the form of notes that are neither bytes nor text, at the other side of a
            bridge: cbor, msgpack or json.
        limits: those of its connections.

    Raises:
        ConfigError: a value that is none of these. AddressError: not an address.
    """

    listen: tuple[str, ...] = ()
    allow_insecure: bool = False
    bridge: str | None = None
    feedback: bool = True
    values: Rest = "cbor"
    limits: RelayLimits = field(default_factory=RelayLimits)

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


def _require_addresses(addresses: Collection[str]) -> None:
    for address in addresses:
        Address.parse(address)
