"""The settings of `parley serve` beyond those of its node: the table `[serve]`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from parley._node.config import Range, require_in_range
from parley._node.discovery.announcement import require_name
from parley._node.errors import ConfigError
from parley._node.protocol.typed import check_types
from parley._node.transport.address import Address
from parley._node.trust.policies import parse_trust

# A note takes its time: less than a millisecond would leave none for anything else.
CLOCK_INTERVALS: Final = Range(0.001)

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
LOG_LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
LOG_FORMATS: Final[tuple[LogFormat, ...]] = get_args(LogFormat)

# A topic may have any character, = among them: the address is what begins like one.
_FORWARD: Final = re.compile(r"(?P<topic>.+?)=(?P<address>(?:tcp|unix)://.*)", re.DOTALL)


class ForwardedTopic(NamedTuple):
    """A topic, and the address of the node that publishes it."""

    topic: str
    address: str


def parse_forward(text: str) -> ForwardedTopic:
    """Read `TOPIC=ADDR`; raises ConfigError, and AddressError for the address."""
    match = _FORWARD.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is not TOPIC=ADDR, as news=tcp://host:port#NODEID")
    Address.parse(match["address"])
    return ForwardedTopic(match["topic"], match["address"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What `parley serve` is told beyond its node's settings.

    Attributes:
        listen: addresses to listen on, `tcp://host:port` or `unix:///path`.
        identity: a key file; None for the own key of whoever runs it (`parley id show`).
        passphrase_file: a file with that key file's passphrase.
        trust: any, first-use, known, or the path of a file of known peers.
        clock_interval: seconds between two notes of the topic `parley.clock`, at least
            0.001.
        announce: whether the node is announced on the local network.
        announce_name: what it calls itself there, at most 63 bytes of UTF-8.
        console: where the console is served, `HOST:PORT` of this machine; None for nowhere.
        metrics: where metrics are told by HTTP, `HOST:PORT`; None for nowhere.
        forward: topics of other nodes that are published here as well, each `TOPIC=ADDR`.
        roles: a file of roles (`Roles.load`), which rights on the bus may name; None for no roles.
        log_level: what is logged: debug, info, warning or error, and what is worse.
        log_format: lines of the log as text, or as JSON.
        access_log: whether connections and refused requests are logged whatever the level.
        log_requests: whether each request that a handler answered is logged as well, with its
            duration; the access log is then there, too.

    Raises:
        ConfigError: a value out of range. AddressError: not an address.
    """

    listen: tuple[str, ...] = ("tcp://127.0.0.1:0",)
    identity: Path | None = None
    passphrase_file: Path | None = None
    trust: str = "any"
    clock_interval: float = 1.0
    announce: bool = False
    announce_name: str = ""
    console: str | None = None
    metrics: str | None = None
    forward: tuple[str, ...] = ()
    roles: Path | None = None
    log_level: LogLevel = "warning"
    log_format: LogFormat = "text"
    access_log: bool = False
    log_requests: bool = False

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        if not self.listen:
            raise ConfigError("listen names no address")
        for address in self.listen:
            Address.parse(address)
        parse_trust(self.trust)
        require_in_range("clock_interval", self.clock_interval, CLOCK_INTERVALS)
        require_name(self.announce_name)
        if self.metrics is not None:
            Address.parse_web(self.metrics)
        if self.console is not None:
            Address.parse_web(self.console)
        for each in self.forward:
            parse_forward(each)
