"""The tables of a settings file as dataclasses: [serve], [bus], [journal], and so on, except
[node].
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, get_args

from parley._crypto.auditor import AuditorKey
from parley._crypto.errors import IdentityError, InvalidKeyError
from parley._crypto.identity import NodeId
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.values import Rest
from parley._node.discovery.announcement import require_name
from parley._node.errors import ConfigError
from parley._node.federation.exports import Exports, read_topic_name
from parley._node.federation.limits import MOST_LINKS
from parley._node.journal.options import LEAST_BUFFER_SIZE, SEGMENT_SIZE, Fsync, OnFailure
from parley._node.protocol.config_types import check_types, setting
from parley._node.protocol.event_types import LONGEST_EXPORT, MOST_EXPORTS, MOST_SERVERS
from parley._node.transport.address import Address
from parley._node.trust.policies import parse_trust

if TYPE_CHECKING:
    from parley._node.journal.journal import Journal


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
Successions = Literal["follow", "ask"]
LOG_LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
LOG_FORMATS: Final[tuple[LogFormat, ...]] = get_args(LogFormat)

# A topic may contain '=', so the address is recognised by its scheme.
_FORWARD: Final = re.compile(r"(?P<topic>.+?)=(?P<address>(?:tcp|unix)://.*)", re.DOTALL)


class ForwardedTopic(NamedTuple):
    """A topic and the address of the node that publishes it."""

    topic: str
    address: str


def parse_forward(text: str) -> ForwardedTopic:
    """Parse `TOPIC=ADDR`; raises ConfigError, and AddressError for the address."""
    match = _FORWARD.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"invalid forward {text!r}: expected TOPIC=ADDR, such as news=tcp://host:port#NODEID"
        )
    Address.parse(match["address"])
    return ForwardedTopic(match["topic"], match["address"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Settings of `parley serve` and `parley run` beyond those of the node.

    Raises:
        ConfigError: a value out of range.
        AddressError: not an address.
    """

    listen: Annotated[
        tuple[str, ...], setting("Addresses to listen on, tcp://host:port or unix:///path.")
    ] = ("tcp://127.0.0.1:0",)
    identity: Annotated[
        Path | None, setting("Key file. Default: the user's own (`parley id show`).")
    ] = None
    passphrase_file: Annotated[
        Path | None, setting("File with the passphrase of the key file.")
    ] = None
    trust: Annotated[
        str,
        setting(
            "Which peers to let in: any, first-use, known, or the path of a file of known peers.",
            reload=True,
        ),
    ] = "any"
    announce: Annotated[bool, setting("Announce the node on the local network.")] = False
    announce_name: Annotated[
        str, setting("Its name in announcements, at most 63 bytes of UTF-8.")
    ] = ""
    console: Annotated[
        str | None, setting("HOST:PORT at which to serve the console; a loopback address.")
    ] = None
    metrics: Annotated[str | None, setting("HOST:PORT at which to serve metrics by HTTP.")] = None
    forward: Annotated[
        tuple[str, ...],
        setting("Topics of other nodes to republish, each TOPIC=ADDR."),
    ] = ()
    roles: Annotated[
        Path | None,
        setting("File of roles, to which rights on the bus can be granted.", reload=True),
    ] = None
    successions: Annotated[
        Successions,
        setting(
            "Whether a successor that the recovery key of a node names is followed, or a person "
            "is asked (`parley peers accept`): follow or ask."
        ),
    ] = "follow"
    present_statements: Annotated[
        bool,
        setting(
            "Send peers the statements by which this node has taken the place of earlier node IDs."
        ),
    ] = True
    log_level: Annotated[
        LogLevel,
        setting("Least severe level to log: debug, info, warning or error.", reload=True),
    ] = "warning"
    log_format: Annotated[
        LogFormat, setting("Format of log lines: text, or json for one object per line.")
    ] = "text"
    access_log: Annotated[
        bool,
        setting("Log connections and refused requests, whatever the level.", reload=True),
    ] = False
    log_requests: Annotated[
        bool,
        setting(
            "Log each answered request with its duration as well; implies the access log.",
            reload=True,
        ),
    ] = False

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        if not self.listen:
            raise ConfigError("listen has no address")
        for address in self.listen:
            Address.parse(address)
        parse_trust(self.trust)
        require_name(self.announce_name)
        if self.metrics is not None:
            Address.parse_web(self.metrics)
        if self.console is not None:
            Address.parse_web(self.console)
        for each in self.forward:
            parse_forward(each)

    @property
    def follows_successors(self) -> bool:
        """Whether a successor that only a recovery key has named is followed without a person."""
        return self.successions == "follow"


ACTIONS: Final = ("publish", "consume", "inspect", "manage")
ANYBODY: Final = "*"
_ANY: Final = "*"

_ENTRY: Final = re.compile(
    r"(?P<who>[^=:]+)=(?P<actions>[a-z+]+):(?P<events>[\w.*-]+)(?::(?P<groups>[!-~]+))?", re.ASCII
)
_ROLE: Final = "@"
_FORM: Final = "NODEID=publish+consume:EVENTS[:GROUPS], @ROLE for a role, * for any"


class BusRight(NamedTuple):
    """The rights of one entry: for the node `node_id`, for nodes with `role`, or for any node.
    `events` and `groups` are patterns in which `*` matches any characters.
    """

    node_id: NodeId | None
    actions: frozenset[str]
    events: str
    groups: str
    role: str = ""

    def allows(
        self,
        node_id: NodeId | None,
        action: str,
        name: str,
        group: str,
        roles: Collection[str] = frozenset(),
    ) -> bool:
        """Return whether a node with these roles has the right. An empty `name` or `group` means
        all.
        """
        return (
            (self.node_id is None or node_id == self.node_id)
            and (not self.role or self.role in roles)
            and action in self.actions
            and _fits(self.events, name)
            # Publishing doesn't depend on a group.
            and (action == "publish" or _fits(self.groups, group))
        )


def parse_right(text: str) -> BusRight:
    """Parse `NODEID=publish+consume:EVENTS[:GROUPS]`.

    Raises:
        ConfigError: an invalid entry.
    """
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ConfigError(f"invalid right {text!r}: expected {_FORM}")
    actions = frozenset(match["actions"].split("+"))
    if not actions <= set(ACTIONS):
        raise ConfigError(
            f"invalid right {text!r}: the actions {match['actions']!r} are not of "
            f"{', '.join(ACTIONS)}"
        )
    who, events, groups = match["who"], match["events"], match["groups"] or _ANY
    if len(who) > 1 and who.startswith(_ROLE):
        return BusRight(None, actions, events, groups, who.removeprefix(_ROLE))
    return BusRight(_who(who, text), actions, events, groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """The bus that a node offers to other nodes.

    Raises:
        ConfigError: a malformed entry.
    """

    url: Annotated[
        str | None,
        setting(
            "Address of the bus to offer, such as sqlite:////var/lib/parley/bus.db; relative "
            "paths start from the file's directory."
        ),
    ] = field(default=None, repr=False)  # it may contain a password
    allow: Annotated[
        tuple[str, ...],
        setting(
            "Rights on the bus: NODEID=ACTIONS:EVENTS[:GROUPS]. ACTIONS are publish, consume, "
            "inspect and manage, joined by +; EVENTS and GROUPS are patterns with *; @ROLE means "
            "the nodes with a role, and * any node. Access is denied by default.",
            reload=True,
        ),
    ] = ()

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for each in self.allow:
            parse_right(each)

    @property
    def rights(self) -> Collection[BusRight]:
        """The entries of `allow`."""
        return tuple(map(parse_right, self.allow))


def _who(text: str, entry: str) -> NodeId | None:
    if text == ANYBODY:
        return None
    try:
        return NodeId.parse(text)
    except IdentityError as error:
        raise ConfigError(
            f"invalid right {entry!r}: {text!r} is neither a node ID, nor @ROLE, nor *"
        ) from error


def _fits(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name. An empty name requires a pattern that matches
    everything.
    """
    if pattern == _ANY:
        return True
    *parts, last = pattern.split(_ANY)
    if not parts or not name:
        return bool(name) and name == last
    if not name.startswith(parts[0]):
        return False
    place = len(parts[0])
    for part in parts[1:]:  # the first match leaves the most text for the rest of the pattern
        found = name.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return name.endswith(last) and len(name) - len(last) >= place


Flavour = Literal["plain", "typed"]
FLAVOURS: Final[tuple[Flavour, ...]] = get_args(Flavour)
# The formats that both Parley and the crate support.
Format = Literal["msgpack", "json", "raw"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

Listen = Annotated[
    tuple[str, ...],
    setting("Addresses to listen on, tcp://host:port or unix:///path. These don't encrypt."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSettings:
    """Settings of SimProto, named events and the event relay.

    Raises:
        ConfigError: a value has another type.
    """

    allow_insecure: Annotated[
        bool, setting("Allow addresses that other machines can reach, without encryption.")
    ] = False
    values: Annotated[
        Rest,
        setting(
            "Format of responses and notes that are neither bytes nor text (SimProto, and a "
            "relay's bridge): cbor, msgpack or json."
        ),
    ] = "cbor"
    limits: DialectLimits = field(default_factory=DialectLimits)

    def __post_init__(self) -> None:
        check_types(self, ConfigError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProtoSettings:
    """Settings of the SimProto gateway.

    Raises:
        ConfigError: a value has another type.
        AddressError: not an address.
    """

    listen: Listen = ()

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSettings:
    """Settings of the gateway for named events.

    Raises:
        ConfigError: a value has another type.
        AddressError: not an address.
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
    """Settings of the event relay.

    Raises:
        ConfigError: a value has another type.
        AddressError: not an address.
    """

    listen: Listen = ()
    bridge: Annotated[
        str | None,
        setting(
            "Topic that publishes the relay's broadcasts as notes, and whose notes the relay "
            "broadcasts."
        ),
    ] = None
    feedback: Annotated[bool, setting("Notify a sender whose target is not connected.")] = True

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _require_addresses(self.listen)


def _require_addresses(addresses: Collection[str]) -> None:
    for address in addresses:
        Address.parse(address)


# Rules for accounts other than a list of node IDs.
AccountRule = Literal["off", "known", "any"]
ACCOUNT_RULES: Final[tuple[AccountRule, ...]] = get_args(AccountRule)
# Maximum number of account IDs in settings; a file (`known`) can have more.
MOST_ACCOUNTS: Final = 4_096
# Maximum number of addresses of one linked server.
MOST_PLACES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationSettings:
    """Settings of a server in a federation.

    Raises:
        ConfigError: not a node id, an address without one, an invalid pattern, or too many of one
            kind.
        AddressError: not an address.
    """

    links: Annotated[
        tuple[str, ...],
        setting(
            "Addresses of servers to keep a link with, each with its node ID: at most "
            f"{MOST_LINKS} servers with {MOST_PLACES} addresses each, which are tried in turn."
        ),
    ] = ()
    members: Annotated[
        tuple[str, ...],
        setting(
            "Node IDs of other servers whose cards and links are accepted, at most "
            f"{MOST_SERVERS - 1} including those of links.",
            reload=True,
        ),
    ] = ()
    carry: Annotated[
        tuple[str, ...],
        setting("Node IDs of servers whose tunnels are forwarded.", reload=True),
    ] = ()
    exports: Annotated[
        tuple[str, ...],
        setting(
            f"Names that peers can request through a tunnel: at most {MOST_EXPORTS} names and "
            f"patterns that end in *, of up to {LONGEST_EXPORT} bytes."
        ),
    ] = ()
    follow: Annotated[
        tuple[str, ...],
        setting("Remote topics that accounts can read with this server's rights, by patterns."),
    ] = ()
    accounts: Annotated[
        AccountRule | tuple[str, ...],
        setting(
            "Which nodes can have an account: off, known (nodes in the file of accounts), any, "
            f"or a list of at most {MOST_ACCOUNTS} node IDs."
        ),
    ] = "off"

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        places = self.places
        if len(places) > MOST_LINKS:
            raise ConfigError(f"links has {len(places):,} servers: at most {MOST_LINKS}")
        for texts in places.values():
            if len(texts) > MOST_PLACES:
                raise ConfigError(
                    f"links has {len(texts):,} addresses of one server: at most {MOST_PLACES}"
                )
        if len(self.all_members) > MOST_SERVERS - 1:
            raise ConfigError(f"{len(self.all_members):,} members: at most {MOST_SERVERS - 1:,}")
        node_ids("carry", self.carry, MOST_SERVERS)
        Exports(self.exports)
        Exports(self.follow)
        if not isinstance(self.accounts, str):
            node_ids("accounts", self.accounts, MOST_ACCOUNTS)

    @property
    def places(self) -> Mapping[NodeId, tuple[str, ...]]:
        """The linked servers and their addresses."""
        places: dict[NodeId, tuple[str, ...]] = {}
        for text in self.links:
            address = Address.parse(text)
            node_id = address.node_id
            if address.scheme == "via":
                raise ConfigError(
                    f"links has {text!r}, which is a path through a server; give a direct address"
                )
            if node_id is None:
                raise ConfigError(f"links has {text!r}, which has no node ID; append #NODEID")
            places[node_id] = tuple(dict.fromkeys((*places.get(node_id, ()), text)))
        return places

    @property
    def all_members(self) -> frozenset[NodeId]:
        """`members`, and the linked servers."""
        return node_ids("members", self.members, MOST_SERVERS) | self.places.keys()

    @property
    def carried(self) -> frozenset[NodeId]:
        """The servers of `carry`."""
        return node_ids("carry", self.carry, MOST_SERVERS)

    @property
    def named_ids(self) -> frozenset[NodeId]:
        """The members, the servers of `carry`, and the owners and homes of topics in `follow`."""
        return self.all_members.union(self.carried, *self.followed_ids.values())

    @property
    def followed_ids(self) -> Mapping[str, tuple[NodeId, ...]]:
        """The node IDs in the patterns of `follow`, such as `TOPIC@SERVER`, by pattern."""
        topics = {one: read_topic_name(one.removesuffix("/*")) for one in self.follow}
        return {one: topic.to for one, topic in topics.items() if topic is not None}


def node_ids(name: str, texts: Iterable[str], most: int) -> frozenset[NodeId]:
    """Parse the node IDs of the setting `name`; ConfigError for an invalid one or more than
    `most`.
    """
    found = set()
    for text in texts:
        try:
            found.add(NodeId.parse(text))
        except IdentityError as error:
            raise ConfigError(f"{name} has {text!r}, which is not a node ID") from error
    if len(found) > most:
        raise ConfigError(f"{name} has {len(found):,} node IDs: at most {most:,}")
    return frozenset(found)


def parse_accounts(text: str) -> AccountRule | tuple[str, ...]:
    """Parse `off`, `known`, `any` or a comma list of node IDs, which the settings check later."""
    for rule in ACCOUNT_RULES:
        if text == rule:
            return rule
    return tuple(each.strip() for each in text.split(",") if each.strip())


FSYNC: Final[tuple[str, ...]] = get_args(Fsync)
ON_FAILURE: Final[tuple[str, ...]] = get_args(OnFailure)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Settings of the journal.

    Raises:
        ConfigError: a value out of range, or not an auditor's key.
    """

    directory: Annotated[
        Path | None, setting("Directory of the segments. Default: no journal.")
    ] = None
    auditors: Annotated[
        tuple[str, ...],
        setting("Keys that can read the journal, from `parley journal keygen`; at least one."),
    ] = ()
    segment_size: Annotated[
        int,
        setting(
            "Size at which a segment is closed; it is also closed after an hour. Connections "
            "wait while more than an eighth of it is unwritten.",
            unit="bytes",
            ge=1 << 16,
        ),
    ] = SEGMENT_SIZE
    fsync: Annotated[
        Fsync,
        setting(
            "When to force records to disk: always (before any data is sent), interval (every "
            "second) or never (the system decides)."
        ),
    ] = "interval"
    on_failure: Annotated[
        OnFailure,
        setting(
            "What to do when the journal cannot be written: alarm (continue without it) or stop "
            "(close all connections)."
        ),
    ] = "alarm"

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        _parse(self.auditors)

    @property
    def keys(self) -> tuple[AuditorKey, ...]:
        """The auditors' keys."""
        return _parse(self.auditors)

    def open(self) -> "Journal | None":
        """Open the journal, for `Node(journal=...)`; None without a directory.

        Raises:
            ConfigError: a directory without an auditor, or vice versa.
            JournalFailedError: the directory cannot be created.
        """
        if self.directory is None:
            if self.auditors:
                raise ConfigError(
                    f"directory is not set, but there are {len(self.auditors)} auditors; set "
                    "journal.directory or give --journal"
                )
            return None
        if not self.auditors:
            raise ConfigError(
                f"cannot write a journal to '{self.directory}': it has no auditor; create a key "
                "with parley journal keygen, and set journal.auditors or give --auditor"
            )
        from parley._node.journal.journal import Journal

        return Journal.open(
            self.directory,
            self.keys,
            segment_size=self.segment_size,
            buffer_size=max(self.segment_size // 8, LEAST_BUFFER_SIZE),
            fsync=self.fsync,
            on_failure=self.on_failure,
        )


def _parse(texts: tuple[str, ...]) -> tuple[AuditorKey, ...]:
    try:
        return tuple(map(AuditorKey.parse, texts))
    except InvalidKeyError as error:
        raise ConfigError(str(error)) from error
