"""A relay without a network, for tests: its router, and clients that read all messages."""

from parley._node.dialects.core import ForeignCore
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import HEAD, LENGTH, SERVER, decode_error, encode_message
from parley._node.dialects.relay.connection import RelayConnection
from parley._node.dialects.relay.router import Router
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded

LIMITS = DialectLimits(longest_frame=4_096, write_buffer=65_536)
A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))


class Hall:
    """Connections by UUID; the connections read the time from `now`."""

    def __init__(
        self, *uuids: bytes, limits: DialectLimits = LIMITS, feedback: bool = True
    ) -> None:
        self.router = Router(feedback=feedback)
        self.limits = limits
        self.now = 100.0
        self.at = {uuid: self.enter(uuid) for uuid in uuids}

    def enter(self, first: bytes = b"") -> RelayConnection:
        """Add a client, which sends `first`."""
        connection = RelayConnection(self.router, self.limits, self.now)
        if first:
            connection.receive_data(first, self.now)
        return connection

    def send(self, uuid: bytes, data: bytes, piece: int = 1 << 30) -> None:
        for at in range(0, len(data), piece):
            self.at[uuid].receive_data(data[at : at + piece], self.now)

    def written(self, uuid: bytes) -> bytes:
        return written(self.at[uuid], self.now)

    def read(self, uuid: bytes) -> "list[tuple[bytes, bytes, bytes]]":
        """Read the messages of a client: recipient, sender, payload."""
        return messages(self.written(uuid))


def written(core: ForeignCore, now: float = 0.0) -> bytes:
    return b"".join(iter(lambda: core.data_to_send(now), b""))


def messages(data: bytes) -> "list[tuple[bytes, bytes, bytes]]":
    found = []
    while data:
        (length,) = LENGTH.unpack_from(data)
        _, to, sender = HEAD.unpack_from(data)
        found.append((to, sender, data[HEAD.size : LENGTH.size + length]))
        data = data[LENGTH.size + length :]
    return found


def faults(data: bytes) -> list[int]:
    return [decode_error(payload).code for _, sender, payload in messages(data) if sender == SERVER]


def end_of(core: ForeignCore) -> tuple[CloseCode, bool] | None:
    """Return how a connection ended, and whether the other side ended it; None if it is open."""
    ends = [report for report in core.reports() if isinstance(report, ConnectionEnded)]
    assert len(ends) <= 1
    return (CloseCode(ends[0].code), ends[0].remote) if ends else None


def message(to: bytes, sender: bytes, payload: bytes = b"") -> bytes:
    return encode_message(to, sender, payload)
