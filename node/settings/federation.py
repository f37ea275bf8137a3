"""What makes a node a server of a federation, and what it does for others: the table
`[federation]` (docs/protocol.md section 19).

Nothing is offered, carried or followed unless it is named here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError
from parley._node.federation.exports import Exports
from parley._node.federation.limits import MOST_LINKS
from parley._node.protocol.config_types import check_types, setting
from parley._node.protocol.event_types import LONGEST_EXPORT, MOST_EXPORTS, MOST_SERVERS
from parley._node.transport.address import Address

# Who may have an account, where it is not said by node ids.
AccountRule = Literal["off", "known", "any"]
ACCOUNT_RULES: Final[tuple[AccountRule, ...]] = get_args(AccountRule)
# Node ids of accounts that settings name; more stand in a file (`known`).
MOST_ACCOUNTS: Final = 4_096
# Addresses of one server that is linked.
MOST_PLACES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationSettings:
    """The part that a server takes in a federation.

    Raises:
        ConfigError: not a node id, an address without one, a pattern that is none, or more of
            one kind than allowed. AddressError: not an address.
    """

    links: Annotated[
        tuple[str, ...],
        setting(
            f"Addresses of servers to keep a link with, each with its node id: at most "
            f"{MOST_LINKS} servers with {MOST_PLACES} addresses each, which are tried in turn."
        ),
    ] = ()
    members: Annotated[
        tuple[str, ...],
        setting(
            "Node ids of other servers whose cards are accepted and that can link here, at most "
            f"{MOST_SERVERS - 1:,} with those of links.",
            reload=True,
        ),
    ] = ()
    carry: Annotated[
        tuple[str, ...],
        setting("Node ids of servers whose tunnels are forwarded.", reload=True),
    ] = ()
    exports: Annotated[
        tuple[str, ...],
        setting(
            "What peers that come through a tunnel can request: at most "
            f"{MOST_EXPORTS} names and patterns that end in *, of {LONGEST_EXPORT} bytes."
        ),
    ] = ()
    follow: Annotated[
        tuple[str, ...],
        setting("Topics elsewhere that accounts read with this server's right, by patterns."),
    ] = ()
    accounts: Annotated[
        AccountRule | tuple[str, ...],
        setting(
            "Who can have an account: off, known (nodes in the file of accounts), any, or "
            f"a list of at most {MOST_ACCOUNTS:,} node ids."
        ),
    ] = "off"

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        places = self.places
        if len(places) > MOST_LINKS:
            raise ConfigError(f"links to {len(places)} servers: at most {MOST_LINKS}")
        for texts in places.values():
            if len(texts) > MOST_PLACES:
                raise ConfigError(f"{len(texts)} addresses of one server: at most {MOST_PLACES}")
        if len(self.all_members) > MOST_SERVERS - 1:
            raise ConfigError(f"{len(self.all_members):,} members: at most {MOST_SERVERS - 1:,}")
        node_ids("carry", self.carry, MOST_SERVERS)
        Exports(self.exports)
        Exports(self.follow)
        if not isinstance(self.accounts, str):
            node_ids("accounts", self.accounts, MOST_ACCOUNTS)

    @property
    def places(self) -> Mapping[NodeId, tuple[str, ...]]:
        """The servers to keep a link with, and the addresses of each."""
        places: dict[NodeId, tuple[str, ...]] = {}
        for text in self.links:
            address = Address.parse(text)
            node_id = address.node_id
            if address.scheme == "via":
                raise ConfigError(f"a link is direct, and does not go by a server: {text}")
            if node_id is None:
                raise ConfigError(f"the link {text} has no node id: write it after a #")
            places[node_id] = tuple(dict.fromkeys((*places.get(node_id, ()), text)))
        return places

    @property
    def all_members(self) -> frozenset[NodeId]:
        """`members`, and those with whom a link is configured."""
        return node_ids("members", self.members, MOST_SERVERS) | self.places.keys()

    @property
    def carried(self) -> frozenset[NodeId]:
        """The servers of `carry`."""
        return node_ids("carry", self.carry, MOST_SERVERS)


def node_ids(name: str, texts: Iterable[str], most: int) -> frozenset[NodeId]:
    """The node ids of the setting `name`; ConfigError if one is none, or they are above `most`."""
    found = set()
    for text in texts:
        try:
            found.add(NodeId.parse(text))
        except IdentityError as error:
            raise ConfigError(f"{name} has {text!r}, which is not a node id") from error
    if len(found) > most:
        raise ConfigError(f"{name} has {len(found):,} node ids: at most {most:,}")
    return frozenset(found)


def parse_accounts(text: str) -> AccountRule | tuple[str, ...]:
    """Read `off`, `known`, `any`, or node ids with commas between them; the settings check them."""
    for rule in ACCOUNT_RULES:
        if text == rule:
            return rule
    return tuple(each.strip() for each in text.split(",") if each.strip())
