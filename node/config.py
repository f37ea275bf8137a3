"""The settings of a node: preferences, limits and policies that all its peers share.

They are frozen, checked when made, and each is documented with its unit and range. Files and the
environment are read elsewhere.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES
from parley._lbm.codec import Value, encode_value
from parley._lbm.noise import NO_PADDING, Padding, parse_padding
from parley._node.errors import ConfigError
from parley._node.messaging.once import ONCE_EPOCH_SIZE, ONCE_INFO
from parley._node.protocol import limits as fixed
from parley._node.protocol.config import CoreConfig, Deliver, Plaintext
from parley._node.protocol.limits import Limits
from parley._node.protocol.typed import check_types

# Twice the protocol's own default (docs/protocol.md section 5): with that, two pieces of bulk data
# at most are on their way. With 2 MiB bulk data takes four fifths of the time, but 15 streams that
# are read slowly fill `peer_memory`, and what else comes is lost to its sender.
STREAM_WINDOW: Final = 512 << 10

LARGEST: Final = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Range:
    """Which numbers a setting takes: `least` or more, or (`above`) only what is greater, and
    `most` or less."""

    least: float
    above: bool = False
    most: float = float("inf")

    def __contains__(self, value: float) -> bool:
        enough = value > self.least if self.above else value >= self.least
        return enough and value <= self.most

    def __str__(self) -> str:
        if self.most < float("inf"):
            return f"{self.least:,}..{self.most:,}"
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
    "once_results": Range(1),
    "once_peer_memory": Range(128 * 1024),
    "once_memory": Range(128 * 1024),
    "write_buffer": Range(1024),
    "accept_timeout": _ABOVE_0,
    "drain_timeout": Range(0),
    "resume": Range(0, most=600),
    "resume_buffer": Range(1 << 20),
    "parted_sessions": Range(0),
    "parted_per_id": Range(0),
    "parted_memory": Range(0),
}

# What may change while a node runs (`Node.change_limits`).
CHANGEABLE: Final = frozenset({*RANGES, "limits", "limit_loopback"})


def require_in_range(name: str, value: float, allowed: Range) -> None:
    """Raise ConfigError if the setting `name`, a number, is out of its range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {value!r}; it must be a number")
    # Whole numbers may be above what a float can be.
    if not abs(value) <= LARGEST:
        raise ConfigError(f"{name} is {value}; it must be a finite number")
    if value not in allowed:
        raise ConfigError(f"{name} is {value:,}; it must be {allowed}")


def require_room_for_epoch(info: Mapping[str, Value]) -> None:
    """Raise ConfigError if there is no room beside node information for what a node says that
    remembers calls (section 18)."""
    stated = {**info, ONCE_INFO: bytes(ONCE_EPOCH_SIZE)}
    if len(encode_value(stated)) > fixed.NODE_INFO_SIZE:
        size = f"{fixed.NODE_INFO_SIZE:,} bytes"
        raise ConfigError(f"info leaves no room in {size} for what a node with once=True says")


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
        once_results: calls that were made once, of one node id, that are remembered for 10 minutes
            at most, at least 1 (section 18); one more is answered with code 19 and not run.
        once_peer_memory: what these may take, bytes of memory, at least 131,072.
        once_memory: what those of all node ids may take, at least 131,072; counts in `memory`.
        write_buffer: bytes that may wait to be written to one peer before its callers wait
            too, at least 1,024.
        accept_timeout: seconds that an accept hook has to answer, above 0; then it is a no.
        drain_timeout: seconds that a closing node waits for running handlers, 0 or more.
        resume: seconds for which a session whose transport was lost may go on over another one,
            0..600; the minimum of both sides holds, and 0 is never (section 17).
        resume_buffer: bytes that are kept for one peer until it has told that they came, at
            least 1 MiB; beyond it what is sent to it waits.
        parted_sessions: sessions without a transport at once, 0 or more; beyond it one of the
            peer that has most of them ends.
        parted_per_id: of these, of one node id, 0 or more; likewise.
        parted_memory: bytes of memory that all of these take together, 0 or more: bytes to be sent
            again, and everything that counts in `peer_memory`. Beyond it the largest session of the
            peer that has most of that ends, also when a session grows later.

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
    once_results: int = 1_000
    once_peer_memory: int = 8 * 2**20
    once_memory: int = 64 * 2**20
    write_buffer: int = 4 * 2**20
    accept_timeout: float = 5.0
    drain_timeout: float = 5.0
    resume: float = 30.0
    resume_buffer: int = 4 * 2**20
    parted_sessions: int = 256
    parted_per_id: int = 8
    parted_memory: int = 64 * 2**20

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for setting, names in (("algorithms", self.algorithms), ("require", self.require)):
            unknown = names.keys() - NAMES.keys()
            if unknown:
                # Passed over, a mistyped one would mean: whatever the other side likes.
                raise ConfigError(f"{setting} has no parameter {', '.join(sorted(unknown))}")
        for name, allowed in RANGES.items():
            require_in_range(name, getattr(self, name), allowed)
        if ONCE_INFO in self.info:
            raise ConfigError(f"info has {ONCE_INFO!r}, which a node says by itself")
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
                resume=self.resume,
                resume_buffer=self.resume_buffer,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
