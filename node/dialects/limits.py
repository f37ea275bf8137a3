"""Limits of connections in foreign dialects. Sizes are in bytes, times in seconds."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from parley._node.protocol.config_types import check_types, setting

LARGEST_FRAME: Final = 1 << 30
_LEAST_BUFFER: Final = 1_024
LARGEST_NAME: Final = 65_535  # lengths of names are u16 on the wire, in every dialect

_Count = Annotated[int, Meta(ge=1, le=1 << 20)]
_Seconds = Annotated[float, Meta(ge=0.001, le=86_400.0 * 365)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectLimits:
    """Limits of the connections of a gateway, a relay or a client of one.

    Files and options set the first five; the others are for programs.

    Attributes:
        longest_frame: the longest message, 64 to 1 GiB. SimProto: the payload of a dialog message;
            named events: an event with its two length fields; relay: two UUIDs and the payload.
        client_memory: bytes of memory that the node holds for one client, at least 1,024: requests
            that are not answered, and data that the client does not read. Beyond it the node reads
            nothing more from the client. Also bounds the unread messages of a `RelayClient` and
            the unread replies to one emitted event.
        memory: the same for all clients of a gateway or relay, at least 1 MiB; beyond it the node
            reads nothing from a client that holds 64 KiB.
        clients: connections to one gateway or relay.
        idle_timeout: time without a byte in either direction, after which a connection is closed
            (named events and relay).
        write_buffer: bytes that wait to be written to one client, at least 1,024; 0 means half of
            `client_memory`. Beyond it nothing more is read from the client, and callers wait. A
            relay stops reading the senders at half of it, and drops the client beyond it.
        longest_name: the longest topic, name or namespace, bytes of UTF-8, 1 to 65,535.
        requests: requests of either side that wait for their response (SimProto), or events that
            have handlers running or wait for replies (named events). A SimProto client that sends
            more is disconnected; with named events the node reads nothing more for now.
        answer_timeout: time for a response (SimProto); then the connection is closed.
        idle_before_ping: time without anything received, after which a Ping is sent (SimProto).
        ping_timeout: time for its Pong.
        uuid_timeout: time in which a relay's client must send its UUID.
        patience: time that a relay's senders wait for a client that reads nothing at all.

    Raises:
        ValueError: a value has another type or is outside its range.
    """

    longest_frame: Annotated[
        int,
        setting("Longest message of a client.", unit="bytes", ge=64, le=LARGEST_FRAME),
    ] = 1 << 20
    client_memory: Annotated[
        int,
        setting(
            "Memory that the node holds for one client: requests without an answer and data that "
            "the client doesn't read. Beyond it the node reads nothing more from the client; a "
            "relay drops a client for which half of it waits.",
            unit="bytes",
            ge=1_024,
            le=LARGEST_FRAME,
        ),
    ] = 8 << 20
    memory: Annotated[
        int,
        setting(
            "The same for all clients of a gateway or relay together. Beyond it the node reads "
            "nothing from a client that holds 64 KiB.",
            unit="bytes",
            ge=1 << 20,
            le=1 << 40,
        ),
    ] = 128 << 20
    clients: Annotated[
        int,
        setting(
            "Connections to one gateway or relay. A further one is closed, unless its address has "
            "at least two fewer than another address, which then loses its oldest one.",
            ge=1,
            le=1 << 20,
        ),
    ] = 256
    idle_timeout: Annotated[
        float,
        setting(
            "Time without a byte in either direction, after which a connection with named events "
            "or to a relay is closed.",
            unit="seconds",
            ge=0.001,
            le=86_400.0 * 365,
        ),
    ] = 3_600.0
    write_buffer: Annotated[int, Meta(ge=0, le=LARGEST_FRAME)] = 0
    longest_name: Annotated[int, Meta(ge=1, le=LARGEST_NAME)] = 1_024
    requests: _Count = 1_024
    answer_timeout: _Seconds = 30.0
    idle_before_ping: _Seconds = 15.0
    ping_timeout: _Seconds = 10.0
    uuid_timeout: _Seconds = 10.0
    patience: _Seconds = 0.1

    def __post_init__(self) -> None:
        check_types(self)
        if not self.write_buffer:
            object.__setattr__(self, "write_buffer", max(self.client_memory // 2, _LEAST_BUFFER))
        if self.write_buffer < _LEAST_BUFFER:
            raise ValueError(f"write_buffer is {self.write_buffer}: expected 0, or int >= 1024")
