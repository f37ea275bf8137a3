"""The settings of a node: preferences, limits and policies that all its peers share.

They are frozen, checked when made, and each is documented with its unit and range. Files and the
environment are read elsewhere.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from crypto.identity import Identity
from crypto.registry import NAMES
from lbm.codec import Value
from lbm.noise import NO_PADDING, Padding, parse_padding
from node.errors import ConfigError
from node.protocol import limits as fixed
from node.protocol.config import CoreConfig, Deliver, Plaintext
from node.protocol.limits import Limits
from node.protocol.typed import check_types

# Twice the protocol's own default (docs/protocol.md section 5): with less,
# too few pieces of bulk data are on their way, which is a third slower.
STREAM_WINDOW: Final = 512 << 10

LARGEST: Final = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Range:
    """Which numbers a setting takes: `least` or more, or (`above`) only what is greater."""

    least: float
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return value > self.least if self.above else value >= self.least

    def __str__(self) -> str:
        return f"above {self.least:g}" if self.above else f"{self.least:,} or more"


_ABOVE_0: Final = Range(0, above=True)

# Every setting of `NodeConfig` that is a number; none may be infinite or NaN.
RANGES: Final[Mapping[str, Range]] = {
    "handshake_timeout": _ABOVE_0,
    "idle_before_ping": _ABOVE_0,
    "ping_timeout": _ABOVE_0,
    "rekey_allowance": Range(1),
    "half_open": Range(1),
    "max_connections": Range(1),
    "connections_per_address": Range(1),
    "handshakes_per_second": _ABOVE_0,
    "peer_memory": Range(64 * 1024),
    "memory": Range(1 << 20),
    "write_buffer": Range(1024),
    "accept_timeout": _ABOVE_0,
    "drain_timeout": Range(0),
}


def require_in_range(name: str, value: float, allowed: Range) -> None:
    """Raise ConfigError if the setting `name`, a number, is out of its range."""
    # Whole numbers may be above what a float can be.
    if not abs(value) <= LARGEST:
        raise ConfigError(f"{name} is {value}; it must be a finite number")
    if value not in allowed:
        raise ConfigError(f"{name} is {value:,}; it must be {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Settings of a node.

    Attributes:
        role: what the node claims to be: client, server or peer.
        algorithms: for each parameter (kex, signing, hash, cipher, sealing) the names to
            negotiate, best first; a parameter that is left out takes the default order.
        require: for some parameters the only names that are good enough; then plaintext
            is "never".
        limits: what Hello and Reply state (max_payload, seal_events, ...).
        network_key: 32 bytes that all nodes of a private network share, or None.
        plaintext: "never", "only" or "both" (section 5).
        deliver: hand events up once "opened", or only once "sealed".
        padding: how payloads are padded (section 7): "off", "padme", "bucket:N", or a `Padding`.
        info: node information for the other side's eyes, at most 1,024 bytes encoded.
        handshake_timeout: seconds for a whole handshake, above 0.
        idle_before_ping, ping_timeout: seconds, above 0 (section 9).
        rekey_allowance: RekeyOffers that one side may send in 10 s, at least 1.
        half_open: connections that may be in their handshake at once, at least 1.
        max_connections: accepted connections at once, handshakes included, at least 1.
        connections_per_address: of these, from one remote address, at least 1.
        handshakes_per_second: new connections of one remote address, above 0; twice as
            many may come at once.
        limit_loopback: whether the two limits for an address hold for this machine's own
            programs as well (loopback and Unix sockets).
        peer_memory: what one peer may have the node hold, bytes of memory, at least 65,536 and
            twice `write_buffer` and `limits.max_payload`: what it does not read, what it asked
            for, what its streams bring (section 8).
        memory: the same for all peers together, at least 1 MiB; beyond it a peer that has
            64 KiB held has no room for more.
        write_buffer: bytes that may wait to be written to one peer before its callers wait
            too, at least 1,024.
        accept_timeout: seconds that an accept hook has to answer, above 0; then it is a no.
        drain_timeout: seconds that a closing node waits for running handlers, 0 or more.

    Raises:
        ConfigError: a value is of another type, or out of its range. What settings have to do
            with each other and with an identity is checked when a node is made.
    """

    role: str = "peer"
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    require: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(stream_window=STREAM_WINDOW))
    network_key: bytes | None = field(default=None, repr=False)
    plaintext: Plaintext = "never"
    deliver: Deliver = "opened"
    padding: Padding | str = NO_PADDING
    info: Mapping[str, Value] = field(default_factory=dict)
    handshake_timeout: float = fixed.HANDSHAKE_TIMEOUT
    idle_before_ping: float = fixed.IDLE_BEFORE_PING
    ping_timeout: float = fixed.PING_TIMEOUT
    rekey_allowance: int = 1
    half_open: int = fixed.HALF_OPEN_CONNECTIONS
    max_connections: int = 10_000
    connections_per_address: int = 256
    handshakes_per_second: float = 50.0
    limit_loopback: bool = False
    peer_memory: int = fixed.PEER_MEMORY
    memory: int = 512 * 2**20
    write_buffer: int = 4 * 2**20
    accept_timeout: float = 5.0
    drain_timeout: float = 5.0

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for setting, names in (("algorithms", self.algorithms), ("require", self.require)):
            unknown = names.keys() - NAMES.keys()
            if unknown:
                # Passed over, a mistyped one would mean: whatever the other side likes.
                raise ConfigError(f"{setting} has no parameter {', '.join(sorted(unknown))}")
        for name, allowed in RANGES.items():
            require_in_range(name, getattr(self, name), allowed)
        for name, size in (
            ("write_buffer", self.write_buffer),
            ("limits.max_payload", self.limits.max_payload),
        ):
            # Else what we send, or one call that we allow, would leave no room for requests.
            if size > self.peer_memory // 2:
                half = f"half of peer_memory, {self.peer_memory:,}"
                raise ConfigError(f"{name} is {size:,}; it must be at most {half}")

    def core(self, identity: Identity) -> CoreConfig:
        """The settings of each connection's core.

        Raises:
            ConfigError: a setting is out of range, or no algorithm is left.
        """
        try:
            return CoreConfig(
                identity=identity,
                role=self.role,
                algorithms={name: self.algorithms.get(name, NAMES[name]) for name in NAMES},
                require=self.require,
                limits=self.limits,
                network_key=self.network_key,
                plaintext=self.plaintext,
                deliver=self.deliver,
                padding=parse_padding(str(self.padding)),
                node_info=self.info,
                handshake_timeout=self.handshake_timeout,
                idle_before_ping=self.idle_before_ping,
                ping_timeout=self.ping_timeout,
                rekey_allowance=self.rekey_allowance,
                peer_memory=self.peer_memory,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
