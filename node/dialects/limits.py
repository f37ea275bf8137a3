"""Limits of connections in foreign dialects. Sizes are in bytes, times in seconds."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from parley._node.protocol.config_types import check_types, setting

LARGEST_FRAME: Final = 1 << 30
_LEAST_BUFFER: Final = 1_024
LARGEST_NAME: Final = 65_535  # every dialect encodes the length of a name as u16

_Count = Annotated[int, Meta(ge=1, le=1 << 20)]
_Seconds = Annotated[float, Meta(ge=0.001, le=86_400.0 * 365)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectLimits:
    """Limits of the connections of a gateway, a relay, or a client of one.

    Settings files and command-line options set the first five; programs can set all of them.

    Attributes:
        longest_frame: the longest message in bytes, 64 to 1 GiB. SimProto: the payload of a dialog
            message; named events: an event with its two length fields; relay: two UUIDs and the
            payload.
        client_memory: bytes of memory for one client, at least 1,024: its unanswered requests, and
            data that it doesn't read. Above the limit, the node stops reading from the client. It
            also limits the unread messages of a `RelayClient` and the unread replies to one emitted
            event.
        memory: bytes of memory for all clients of a gateway or relay, at least 1 MiB. Above the
            limit, the node stops reading from each client that uses 64 KiB or more.
        clients: the maximum number of connections to one gateway or relay.
        idle_timeout: seconds without traffic in either direction, after which a connection is
            closed (named events and relay).
        write_buffer: bytes that may wait to be written to one client, at least 1,024; 0 means half
            of `client_memory`. Above the limit, the node stops reading from the client, and callers
            wait. A relay stops reading from the senders at half of the limit, and drops the client
            above it.
        longest_name: the longest topic, name or namespace in bytes of UTF-8, 1 to 65,535.
        requests: SimProto: unanswered requests of either side; a client that sends more is
            disconnected. Named events: events with running handlers, or that wait for replies; at
            the limit, the node stops reading from the client.
        answer_timeout: seconds to wait for a response before the connection is closed (SimProto).
        idle_before_ping: seconds without received data, after which a Ping is sent (SimProto).
        ping_timeout: seconds to wait for the Pong (SimProto).
        uuid_timeout: seconds in which a relay's client must send its UUID.
        patience: seconds that a relay's senders wait for a client that doesn't read at all.

    Raises:
        ValueError: a value has the wrong type or is out of range.

    Example:

        from parley.dialects import DialectLimits

        limits = DialectLimits(clients=10, longest_frame=64 * 1024)
    """

    longest_frame: Annotated[
        int,
        setting("Longest message of a client.", unit="bytes", ge=64, le=LARGEST_FRAME),
    ] = 1 << 20
    client_memory: Annotated[
        int,
        setting(
            "Memory for one client: its unanswered requests, and data that it doesn't read. Above "
            "the limit, the node stops reading from the client. A relay drops a client once half "
            "of the limit waits to be sent to it.",
            unit="bytes",
            ge=1_024,
            le=LARGEST_FRAME,
        ),
    ] = 8 << 20
    memory: Annotated[
        int,
        setting(
            "Memory for all clients of a gateway or relay together. Above the limit, the node "
            "stops reading from each client that uses 64 KiB or more.",
            unit="bytes",
            ge=1 << 20,
            le=1 << 40,
        ),
    ] = 128 << 20
    clients: Annotated[
        int,
        setting(
            "Maximum number of connections to one gateway or relay. Further ones are rejected, "
            "unless their address has at least two fewer than another address, which then loses "
            "its oldest connection.",
            ge=1,
            le=1 << 20,
        ),
    ] = 256
    idle_timeout: Annotated[
        float,
        setting(
            "Time without traffic in either direction, after which a connection with named events "
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
            raise ValueError(
                f"invalid write_buffer {self.write_buffer}: expected 0 or at least {_LEAST_BUFFER}"
            )
