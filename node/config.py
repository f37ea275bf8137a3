"""The settings of a node: preferences, limits and policies that all its peers share.

They are frozen, checked when made, and each is documented with its unit and range. Files and the
environment are read elsewhere.
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

# The least memory that remembered calls can have: one call and its result.
LEAST_ONCE_MEMORY: Final = 128 * 1024

OptionalCount = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Limits of a node that no file and no option sets. Tests and benchmarks set other values.

    None means a share of a setting; `NodeConfig` computes it.

    Attributes:
        handshake_timeout: seconds for a whole handshake.
        ping_timeout: seconds to wait for a reply to a Ping (section 9).
        rekey_allowance: RekeyOffers that one side can send in 10 s.
        half_open: accepted connections in their handshake at once.
        once_results: remembered calls with `once` of one node id (section 18).
        once_peer_memory: bytes of memory of these; default a quarter of `peer_memory`.
        once_memory: the same for all node ids; default an eighth of `memory`.
        write_buffer: bytes that wait to be written to one peer before its callers wait; default
            an eighth of `peer_memory`.
        accept_timeout: seconds for an accept hook; then the peer is refused.
        resume_buffer: bytes kept for one peer until it acknowledges them; default an eighth of
            `peer_memory`, at least 1 MiB (section 17).
        parted_sessions: suspended sessions at once; beyond it one of the peer with most ends.
        parted_per_id: of these, of one node id.
        parted_memory: bytes of memory of all suspended sessions; default an eighth of `memory`.
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


# Twice the protocol's own default (docs/protocol.md section 5): with that, two pieces of bulk data
# at most are on their way. With 2 MiB bulk data takes four fifths of the time, but 15 streams that
# are read slowly fill `peer_memory`, and what else comes is lost to its sender.
STREAM_WINDOW: Final = 512 << 10


def require_room_for_epoch(info: Mapping[str, Value]) -> None:
    """Raise ConfigError if there is no room beside node information for what a node says that
    remembers calls (section 18)."""
    stated = {**info, ONCE_INFO: bytes(ONCE_EPOCH_SIZE)}
    if len(encode_value(stated)) > fixed.NODE_INFO_SIZE:
        size = f"{fixed.NODE_INFO_SIZE:,} bytes"
        raise ConfigError(f"info leaves no room in {size} for what a node with once=True says")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Settings of a node. docs/reference/settings.md describes each of them.

    Attributes:
        require: for some parameters the only algorithms that are accepted; then `plaintext` must be
            "never".
        network_key: 32 bytes that all nodes of a private network share, or None.
        padding: "off", "padme", "bucket:N", or a `Padding`.
        tuning: limits that aren't settings, for tests and benchmarks.

    Raises:
        ConfigError: a value has another type or is outside its range. `Node` checks the settings
            against each other and the identity.
    """

    role: Annotated[str, setting("What the node claims to be: client, server or peer.")] = "peer"
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    require: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(stream_window=STREAM_WINDOW))
    network_key: bytes | None = field(default=None, repr=False)
    plaintext: Annotated[
        Plaintext,
        setting(
            "Unencrypted connections: never, only these, or both kinds when listening. Not with a "
            "network key, nor with a trust policy other than any."
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
        Padding | str, setting("How payloads hide their length: off, padme or bucket:N.")
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
            "Accepted connections at once, handshakes included; further ones are closed. The "
            "system's limit of open files is often lower.",
            ge=1,
            reload=True,
        ),
    ] = 10_000
    connections_per_address: Annotated[
        int,
        setting("Of these, from one remote address (IPv6: its /64).", ge=1, reload=True),
    ] = 256
    handshakes_per_second: Annotated[
        float,
        setting(
            "New connections of one remote address in a second; twice as many can come at once.",
            gt=0,
            reload=True,
        ),
    ] = 50.0
    limit_loopback: Annotated[
        bool,
        setting(
            "Apply the two limits for an address to loopback addresses and Unix sockets too.",
            reload=True,
        ),
    ] = False
    peer_memory: Annotated[
        int,
        setting(
            "Memory that the node holds for one peer: requests, data of its streams, notes and "
            "answers that it doesn't read. At least twice limits.max_payload. Beyond it requests "
            "get Result 19, streams are reset and subscriptions end or lose notes. An eighth of it "
            "can wait to be written before callers wait, an eighth is kept for a session that can "
            "be resumed, and a quarter holds results of calls with `once`.",
            unit="bytes",
            ge=64 * 1024,
            reload=True,
        ),
    ] = fixed.PEER_MEMORY
    memory: Annotated[
        int,
        setting(
            "The same for all peers together. Beyond it, a peer that holds 64 KiB gets no more. An "
            "eighth of it can hold suspended sessions, and an eighth results of calls with `once`.",
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
            "How long a session that lost its transport can continue over another one; the minimum "
            "of both sides applies, and 0 means never.",
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
                # Ignored, a mistyped one would mean: whatever the other side likes.
                raise ConfigError(f"{name} has no parameter {', '.join(sorted(unknown))}")
        if ONCE_INFO in self.info:
            raise ConfigError(f"info has {ONCE_INFO!r}, which the node adds itself")
        for name, size in (
            ("write_buffer", self.write_buffer),
            ("limits.max_payload", self.limits.max_payload),
        ):
            # Else what we send, or one call that we allow, would leave no room for requests.
            if size > self.peer_memory // 2:
                half = f"half of peer_memory, {self.peer_memory:,}"
                raise ConfigError(f"{name} is {size:,}; it must be at most {half}")

    @property
    def write_buffer(self) -> int:
        """Bytes that wait to be written to one peer before its callers wait."""
        return self.tuning.write_buffer or self.peer_memory // 8

    @property
    def resume_buffer(self) -> int:
        """Bytes that are kept for one peer until it acknowledges them."""
        return self.tuning.resume_buffer or max(self.peer_memory // 8, fixed.LEAST_RESUME_BUFFER)

    @property
    def once_peer_memory(self) -> int:
        """Bytes of memory of the remembered calls of one node id."""
        return self.tuning.once_peer_memory or max(self.peer_memory // 4, LEAST_ONCE_MEMORY)

    @property
    def once_memory(self) -> int:
        """Bytes of memory of the remembered calls of all node ids."""
        return self.tuning.once_memory or max(self.memory // 8, LEAST_ONCE_MEMORY)

    @property
    def parted_memory(self) -> int:
        """Bytes of memory of all suspended sessions."""
        found = self.tuning.parted_memory
        return self.memory // 8 if found is None else found

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


# What can change while a node runs (`Node.change_limits`).
CHANGEABLE: Final = frozenset(
    name
    for name, hint in get_type_hints(NodeConfig, include_extras=True).items()
    if is_reloadable(hint)
) | {"limits", "tuning"}
