"""The limits of the foreign dialects: one frozen class for each, checked when made.

Whatever a stranger can make grow is bounded by a number in this module. Sizes are in bytes, times
in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Final

# The range of each number: least and greatest.
LEAST_FRAME: Final = 64
LARGEST_FRAME: Final = 1 << 30
LARGEST_MEMORY: Final = 1 << 40
LARGEST_NAME: Final = 65_535  # lengths of names are u16 on the wire, in every dialect
LARGEST_COUNT: Final = 1 << 20
LONGEST_TIME: Final = 86_400.0 * 365

_SIZES: Final = (LEAST_FRAME, LARGEST_FRAME)
_COUNTS: Final = (1, LARGEST_COUNT)
_TIMES: Final = (0.001, LONGEST_TIME)

RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "longest_frame": _SIZES,
    "longest_name": (1, LARGEST_NAME),
    "client_memory": (1_024, LARGEST_FRAME),
    "memory": (1 << 20, LARGEST_MEMORY),
    "write_buffer": (1_024, LARGEST_FRAME),
    "clients": _COUNTS,
    "dialogs": _COUNTS,
    "events": _COUNTS,
    "subscriptions": _COUNTS,
    "answer_timeout": _TIMES,
    "idle_before_ping": _TIMES,
    "ping_timeout": _TIMES,
    "idle_timeout": _TIMES,
    "uuid_timeout": _TIMES,
    "patience": _TIMES,
}


class _Checked:
    """Raises ValueError for a number outside its range."""

    __slots__ = ()

    def __post_init__(self) -> None:
        own: Any = self
        for setting in fields(own):
            allowed = RANGES.get(setting.name)
            if allowed is None:
                continue
            value = getattr(self, setting.name)
            whole = setting.type is int
            right = type(value) is int or (not whole and type(value) is float and isfinite(value))
            if not right or not allowed[0] <= value <= allowed[1]:
                kind = "a whole number" if whole else "a number"
                raise ValueError(
                    f"{setting.name} is {value!r}; it is {kind} from {allowed[0]:,} to "
                    f"{allowed[1]:,}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProtoLimits(_Checked):
    """Limits of SimProto connections.

    Attributes:
        longest_frame: payload of one dialog message, bytes, 64 to 1 GiB.
        longest_name: a topic, bytes of UTF-8, 1 to 65,535.
        dialogs: requests of either side that may wait for their response at once; a side that
            starts one more has its connection closed.
        client_memory: what the other side may have us hold, in bytes of memory, at least
            1,024: its requests that are not answered, responses and notes that it does not read;
            beyond it nothing more is read for now.
        memory: the same for all clients of a gateway together, at least 1 MiB; beyond it a
            client for which 64 KiB are held is not read for now.
        write_buffer: bytes that wait to be written because the other side does not read,
            at least 1,024; beyond it nothing more is read, and callers wait.
        answer_timeout: seconds that a response may take; after that the connection is ended.
        idle_before_ping: seconds without anything received, after which a Ping is sent.
        ping_timeout: seconds that its Pong may take.
        clients: connections to one gateway at once.

    Raises:
        ValueError: a number is outside its range.
    """

    longest_frame: int = 1 << 20
    longest_name: int = 1_024
    dialogs: int = 1_024
    client_memory: int = 8 << 20
    memory: int = 128 << 20
    write_buffer: int = 2 << 20
    answer_timeout: float = 30.0
    idle_before_ping: float = 15.0
    ping_timeout: float = 10.0
    clients: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLimits(_Checked):
    """Limits of connections with byte-exact named events.

    Attributes:
        longest_frame: one event with its two length fields, bytes, 64 to 1 GiB.
        longest_name: a name, and a namespace, bytes of UTF-8, 1 to 65,535.
        events: how many events of the other side may have handlers that run, and how many
            events of ours may wait for replies, at once; beyond the former nothing more is read
            for now.
        client_memory: what the other side may have us hold, in bytes of memory, at least
            1,024: events whose handlers run, what it does not read; beyond it nothing more is
            read for now. Also bounds the unread replies to one event of ours.
        memory: the same for all clients of a gateway together, at least 1 MiB; beyond it a
            client for which 64 KiB are held is not read for now.
        write_buffer: bytes that wait to be written because the other side does not read,
            at least 1,024; beyond it nothing more is read, and emitters wait.
        idle_timeout: seconds without a byte either way, after which it is closed.
        clients: connections to one gateway at once.

    Raises:
        ValueError: a number is outside its range.
    """

    longest_frame: int = 1 << 20
    longest_name: int = 1_024
    events: int = 1_024
    client_memory: int = 8 << 20
    memory: int = 128 << 20
    write_buffer: int = 2 << 20
    idle_timeout: float = 3_600.0
    clients: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits(_Checked):
    """Limits of an event relay.

    Attributes:
        longest_frame: what follows the length of a message (two UUIDs and the payload),
            bytes, 64 to 1 GiB.
        write_buffer: bytes that wait for one client because it does not read, at least
            1,024; a client for which more waits is dropped and counted. While more than half
            of it waits, clients that send to that client are not read.
        patience: seconds that senders wait for a client that takes nothing at all.
        client_memory: messages that came to a client (`RelayClient`) and were not read,
            each with 300 bytes, at least 1,024; beyond it nothing more is read for now.
        memory: what waits for all clients of a relay together, bytes, at least 1 MiB; beyond
            it senders wait for a client for which 64 KiB wait as if half of `write_buffer`
            waited, and one that takes nothing is dropped.
        uuid_timeout: seconds in which a client must send its UUID.
        idle_timeout: seconds without a byte either way, after which it is closed.
        clients: connections at once.

    Raises:
        ValueError: a number is outside its range.
    """

    longest_frame: int = 1 << 20
    write_buffer: int = 4 << 20
    patience: float = 0.1
    client_memory: int = 8 << 20
    memory: int = 128 << 20
    uuid_timeout: float = 10.0
    idle_timeout: float = 3_600.0
    clients: int = 256
