"""The settings of a node: preferences, limits and policies that apply to all its peers.

They are immutable and validated on creation. Each is documented with its unit and range.
`parley.settings` reads them from files and the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, get_type_hints

from msgspec import Meta

from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES
from parley._lbm.codec import Value, encode_value
from parley._lbm.padding import NO_PADDING, Padding, parse_padding
from parley._node.errors import ConfigError
from parley._node.messaging.idempotency import ONCE_EPOCH_SIZE, ONCE_INFO
from parley._node.protocol import limits as fixed
from parley._node.protocol.config import CoreConfig, Deliver, Plaintext
from parley._node.protocol.config_types import Count, Seconds, check_types, is_reloadable, setting
from parley._node.protocol.limits import Limits

# The minimum memory for remembered calls: one call and its result.
LEAST_ONCE_MEMORY: Final = 128 * 1024

OptionalCount = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Limits that cannot be set in a settings file or by an option, for tests and benchmarks.

    None means a fraction of a setting, which `NodeConfig` computes.

    Attributes: handshake_timeout: seconds for a whole handshake. ping_timeout: seconds to wait for
    a reply to a Ping (section 9). rekey_allowance: RekeyOffers that one side can send in 10 s.
    half_open: maximum number of accepted connections that are still in their handshake.
    once_results: maximum number of remembered calls with `once` per node ID (section 18).
    once_peer_memory: bytes for the remembered calls of one node ID; default a quarter of
    `peer_memory`. once_memory: bytes for the remembered calls of all node IDs; default an eighth of
    `memory`. write_buffer: bytes buffered for writing to one peer before callers wait; default an
    eighth of `peer_memory`. accept_timeout: seconds for an accept hook, after which the peer is
    refused. resume_buffer: bytes stored for one peer until it acknowledges them; default an eighth
    of `peer_memory`, at least 1 MiB (section 17). parted_sessions: maximum number of suspended
    sessions; beyond it, a session of the peer with the most is ended. parted_per_id: maximum number
    of suspended sessions per node ID. parted_memory: bytes for all suspended sessions; default an
    eighth of `memory`.
    """

    handshake_timeout: Seconds = fixed.HANDSHAKE_TIMEOUT
    ping_timeout: Seconds = fixed.PING_TIMEOUT
    rekey_allowance: Count = 1
    half_open: Count = fixed.HALF_OPEN_CONNECTIONS
    once_results: Count = 1_000
    once_peer_memory: Annotated[int, Meta(ge=LEAST_ONCE_MEMORY)] | None = None
    once_memory: Annotated[int, Meta(ge=LEAST_ONCE_MEMORY)] | None = None
    write_buffer: Annotated[int, Meta(ge=1_024)] | None = None
    accept_timeout: Seconds = 5.0
    resume_buffer: Annotated[int, Meta(ge=fixed.LEAST_RESUME_BUFFER)] | None = None
    parted_sessions: OptionalCount = 256
    parted_per_id: OptionalCount = 8
    parted_memory: OptionalCount | None = None

    def __post_init__(self) -> None:
        check_types(self, ConfigError)


# Twice the protocol's own default (docs/protocol.md section 5), which lets two pieces of bulk data
# be in transit. With 2 MiB, bulk data takes 20% less time, but 15 streams that are read slowly fill
# `peer_memory`, and further data from the peer is discarded.
STREAM_WINDOW: Final = 512 << 10


def require_room_for_epoch(info: Mapping[str, Value]) -> None:
    """Raise ConfigError if the node information leaves no space for the epoch of `once` (section
    18).
    """
    stated = {**info, ONCE_INFO: bytes(ONCE_EPOCH_SIZE)}
    if len(encode_value(stated)) > fixed.NODE_INFO_SIZE:
        size = f"{fixed.NODE_INFO_SIZE:,} bytes"
        raise ConfigError(
            f"cannot use once=True or writers= with this info: with the epoch that they add, it "
            f"exceeds {size}; shorten info"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of a node; docs/reference/settings.md describes each of them.

    Attributes: require: the only algorithms that are accepted, for some parameters; requires
    `plaintext` to be "never". network_key: the 32-byte key shared by all nodes of a private
    network, or None. padding: "off", "padme", "bucket:N", or a `Padding`. tuning: limits that
    aren't settings, for tests and benchmarks.

    Example:

        from parley import Identity, Node, NodeConfig

        config = NodeConfig(max_connections=100, padding="padme")
        async with Node(Identity.create(), config=config) as server:
            assert server.config.max_connections == 100

    Raises:
        ConfigError: a value has the wrong type or is out of range. `Node` checks the settings
            against each other and against the identity.
    """

    role: Annotated[str, setting("The role that the node claims: client, server or peer.")] = "peer"
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    require: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(stream_window=STREAM_WINDOW))
    network_key: bytes | None = field(default=None, repr=False)
    plaintext: Annotated[
        Plaintext,
        setting(
            "Unencrypted connections: never, only these, or both kinds when listening. Cannot be "
            "combined with a network key or with a trust policy other than any."
        ),
    ] = "never"
    deliver: Annotated[
        Deliver,
        setting(
            "When an event reaches the application: once it is opened (decrypted), or once the "
            "seal that covers it is verified."
        ),
    ] = "opened"
    padding: Annotated[
        Padding | str, setting("How the length of payloads is hidden: off, padme or bucket:N.")
    ] = NO_PADDING
    info: Annotated[
        Mapping[str, Value],
        setting("Node information that each peer can read, at most 1,024 bytes encoded."),
    ] = field(default_factory=dict)
    idle_before_ping: Annotated[
        float,
        setting("Silence after which the peer is pinged.", unit="seconds", gt=0, reload=True),
    ] = fixed.IDLE_BEFORE_PING
    max_connections: Annotated[
        int,
        setting(
            "Maximum number of accepted connections, including handshakes; further ones are "
            "closed. The system's limit on open files is often lower.",
            ge=1,
            reload=True,
        ),
    ] = 10_000
    connections_per_address: Annotated[
        int,
        setting(
            "Maximum number of these from one remote address (IPv6: its /64).", ge=1, reload=True
        ),
    ] = 256
    handshakes_per_second: Annotated[
        float,
        setting(
            "New connections per second from one remote address, in bursts of up to twice as many.",
            gt=0,
            reload=True,
        ),
    ] = 50.0
    limit_loopback: Annotated[
        bool,
        setting(
            "Also apply the two limits per address to loopback addresses and Unix sockets.",
            reload=True,
        ),
    ] = False
    peer_memory: Annotated[
        int,
        setting(
            "Memory that the node uses for one peer: requests, data of its streams, and notes and "
            "answers that it doesn't read. At least twice limits.max_payload. Beyond it, requests "
            "get Result 19, streams are reset, and subscriptions end or lose notes. An eighth is "
            "for data to be written, an eighth for resuming a session, and a quarter for "
            "results of calls with `once`.",
            unit="bytes",
            ge=64 * 1024,
            reload=True,
        ),
    ] = fixed.PEER_MEMORY
    memory: Annotated[
        int,
        setting(
            "The same for all peers together. Beyond it, a peer that already uses 64 KiB gets no "
            "further memory. An eighth is for suspended sessions, and an eighth for results "
            "of calls with `once`.",
            unit="bytes",
            ge=1 << 20,
            reload=True,
        ),
    ] = 512 * 2**20
    drain_timeout: Annotated[
        float,
        setting(
            "How long a closing node waits for running handlers.", unit="seconds", ge=0, reload=True
        ),
    ] = 5.0
    resume: Annotated[
        float,
        setting(
            "How long a session that lost its transport can continue over another one. The lower "
            "value of both sides applies; 0 means never.",
            unit="seconds",
            ge=0,
            le=600,
            reload=True,
        ),
    ] = 30.0
    tuning: Tuning = field(default_factory=Tuning)

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        if isinstance(self.padding, str):
            try:
                object.__setattr__(self, "padding", parse_padding(self.padding))
            except ValueError as error:
                raise ConfigError(str(error)) from error
        for name, names in (("algorithms", self.algorithms), ("require", self.require)):
            unknown = names.keys() - NAMES.keys()
            if unknown:
                # If unknown parameters were ignored, a typing error would allow all algorithms.
                raise ConfigError(
                    f"{name} has no parameter {', '.join(sorted(unknown))}; the parameters are "
                    f"{', '.join(NAMES)}"
                )
        if ONCE_INFO in self.info:
            raise ConfigError(f"info has {ONCE_INFO!r}, which the node adds itself; remove it")
        for name, size in (
            ("write_buffer", self.write_buffer),
            ("limits.max_payload", self.limits.max_payload),
        ):
            # Otherwise our own data, or a single call of the peer, would leave no memory for
            # requests.
            if size > self.peer_memory // 2:
                half = f"half of peer_memory, {self.peer_memory:,}"
                raise ConfigError(f"{name} is {size:,}; it must be at most {half}")

    @property
    def write_buffer(self) -> int:
        """Bytes buffered for writing to one peer before callers wait."""
        return self.tuning.write_buffer or self.peer_memory // 8

    @property
    def resume_buffer(self) -> int:
        """Bytes stored for one peer until it acknowledges them."""
        return self.tuning.resume_buffer or max(self.peer_memory // 8, fixed.LEAST_RESUME_BUFFER)

    @property
    def once_peer_memory(self) -> int:
        """Bytes of memory for the remembered calls of one node ID."""
        return self.tuning.once_peer_memory or max(self.peer_memory // 4, LEAST_ONCE_MEMORY)

    @property
    def once_memory(self) -> int:
        """Bytes of memory for the remembered calls of all node IDs."""
        return self.tuning.once_memory or max(self.memory // 8, LEAST_ONCE_MEMORY)

    @property
    def parted_memory(self) -> int:
        """Bytes of memory for all suspended sessions."""
        found = self.tuning.parted_memory
        return self.memory // 8 if found is None else found

    def core(self, identity: Identity) -> CoreConfig:
        """Return the settings for the core of each connection.

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
                handshake_timeout=self.tuning.handshake_timeout,
                idle_before_ping=self.idle_before_ping,
                ping_timeout=self.tuning.ping_timeout,
                rekey_allowance=self.tuning.rekey_allowance,
                peer_memory=self.peer_memory,
                resume=self.resume,
                resume_buffer=self.resume_buffer,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error


# The settings that `Node.change_limits` can change.
CHANGEABLE: Final = frozenset(
    name
    for name, hint in get_type_hints(NodeConfig, include_extras=True).items()
    if is_reloadable(hint)
) | {"limits", "tuning"}
