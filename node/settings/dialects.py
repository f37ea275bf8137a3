"""Where a node speaks the other dialects, and within which limits: the tables `[dialects]`,
`[simproto]`, `[named]` and `[relay]`.

`node.gateways.server` decides whether an address can be listened on.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, get_args

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.values import Rest
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import check_types, setting
from parley._node.transport.address import Address

Flavour = Literal["plain", "typed"]
FLAVOURS: Final[tuple[Flavour, ...]] = get_args(Flavour)
# Of the formats that we know, those that the crate has as well.
Format = Literal["msgpack", "json", "raw"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

Listen = Annotated[
    tuple[str, ...],
    setting("Addresses to listen on, tcp://host:port or unix:///path. These don't encrypt."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSettings:
    """What SimProto, named events and the event relay have in common.

    Raises:
        ConfigError: a value has another type.
    """

    allow_insecure: Annotated[
        bool, setting("Allow addresses that other machines can reach, without encryption.")
    ] = False
    values: Annotated[
        Rest,
        setting(
            "Form of answers and notes that are neither bytes nor text (SimProto, and a relay's "
            "bridge): cbor, msgpack or json."
        ),
    ] = "cbor"
    limits: DialectLimits = field(default_factory=DialectLimits)

    def __post_init__(self) -> None:
        check_types(self, ConfigError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProtoSettings:
    """Where a node speaks SimProto.

    Raises:
        ConfigError: a value has another type. AddressError: not an address.
    """

    listen: Listen = ()

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSettings:
    """How a node speaks named events as the crate does.

    Raises:
        ConfigError: a value has another type. AddressError: not an address.
    """

    listen: Listen = ()
    flavour: Annotated[
        Flavour, setting("Header: plain (versions 0.14 to 0.17) or typed (from 0.18 on).")
    ] = "plain"
    format: Annotated[
        Format,
        setting("Format of replies, unless the handler chooses another: msgpack, json or raw."),
    ] = "msgpack"

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """The event relay of `parley serve`.

    Raises:
        ConfigError: a value has another type. AddressError: not an address.
    """

    listen: Listen = ()
    bridge: Annotated[
        str | None,
        setting(
            "Topic of the node whose notes the relay broadcasts, and that gets the relay's "
            "broadcasts as notes."
        ),
    ] = None
    feedback: Annotated[bool, setting("Notify a sender whose target is not connected.")] = True

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


def _require_addresses(addresses: Collection[str]) -> None:
    for address in addresses:
        Address.parse(address)
