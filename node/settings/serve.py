"""The settings of `parley serve` beyond those of its node: the table `[serve]`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, get_args

from parley._node.discovery.announcement import require_name
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import check_types, setting
from parley._node.transport.address import Address
from parley._node.trust.policies import parse_trust

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
    """Settings of `parley serve` and `parley run` beyond those of the node.

    Raises:
        ConfigError: a value out of range. AddressError: not an address.
    """

    listen: Annotated[
        tuple[str, ...], setting("Addresses to listen on, tcp://host:port or unix:///path.")
    ] = ("tcp://127.0.0.1:0",)
    identity: Annotated[
        Path | None, setting("Key file; by default the user's own (`parley id show`).")
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
        str | None, setting("HOST:PORT of this machine where the console is served.")
    ] = None
    metrics: Annotated[str | None, setting("HOST:PORT where metrics are served by HTTP.")] = None
    forward: Annotated[
        tuple[str, ...],
        setting("Topics of other nodes that are published here too, each TOPIC=ADDR."),
    ] = ()
    roles: Annotated[
        Path | None,
        setting("File of roles, which rights on the bus can name.", reload=True),
    ] = None
    log_level: Annotated[
        LogLevel,
        setting("Least severe level that is logged: debug, info, warning or error.", reload=True),
    ] = "warning"
    log_format: Annotated[LogFormat, setting("Log lines as text, or as JSON objects.")] = "text"
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
            raise ConfigError("listen names no address")
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
