"""Limits of a node that aren't settings: constants, and shares of its memory settings."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from parley._node.errors import ConfigError
from parley._node.protocol import limits as fixed
from parley._node.protocol.config_types import Count, Seconds, check_types

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
