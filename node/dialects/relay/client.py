"""The client's side of a connection to an event relay.

The client sends its UUID first and doesn't wait, because the relay doesn't confirm it.
"""

from parley._node.dialects.core import ForeignCore
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import (
    BROADCAST,
    HEAD,
    LENGTH,
    SERVER,
    UUID_SIZE,
    UUIDS_SIZE,
    RelayCode,
    RelayFault,
    RelayMessage,
    check_length,
    decode_error,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.protocol.memory_budget import MemoryBudget

# The cost of an unread message in addition to its payload, in bytes.
MESSAGE_COST = 300


class RelayClientConnection(ForeignCore):
    """A client's connection: reports `RelayMessage` and `RelayFault`, and `ConnectionEnded` at the
    end.

    `fault` is the last reported error other than a missing target; it is the reason if the
    connection ends. `misdirected` counts messages addressed to another client. Reading pauses while
    more than `client_memory` bytes of reports are not `consumed`. `unread` counts these bytes,
    including those of the client's earlier connections.
    """

    __slots__ = ("_limits", "_needed", "_pending", "_unread", "fault", "misdirected", "uuid")

    def __init__(
        self, uuid: bytes, limits: DialectLimits, now: float, unread: MemoryBudget | None = None
    ) -> None:
        super().__init__(now, limits.write_buffer, MemoryBudget(limits.client_memory))
        if len(uuid) != UUID_SIZE:
            raise ValueError(f"invalid UUID of {len(uuid)} bytes: expected {UUID_SIZE}")
        self.uuid = uuid
        self.fault: RelayFault | None = None
        self.misdirected = 0
        self._limits = limits
        self._pending = bytearray()
        self._needed = LENGTH.size
        self._unread = unread or MemoryBudget(limits.client_memory)
        self.outbox.put(uuid)

    @property
    def wants_data(self) -> bool:
        """Whether the application keeps up with reading."""
        return self._unread.has_room(0) or self.closing

    def send(self, to: bytes, payload: bytes) -> None:
        """Queue a message to the client `to` (16 bytes; all zero for a broadcast to all other
        clients).

        Raises:
            PayloadTooLargeError: the message, with its UUIDs, is longer than `longest_frame`.
            ConnectionClosedError: the connection is closed.
        """
        self._require_open()
        length = UUIDS_SIZE + len(payload)
        if length > self._limits.longest_frame:
            most = self._limits.longest_frame - UUIDS_SIZE
            raise PayloadTooLargeError(
                f"cannot send a payload of {len(payload):,} bytes: the limit is {most:,}"
            )
        self.outbox.put(HEAD.pack(length, to, self.uuid) + payload)

    def consumed(self, message: RelayMessage) -> None:
        paused = not self.wants_data
        self._unread.release(len(message.payload) + MESSAGE_COST)
        if paused and self.wants_data:
            self.outbox.waker.changed()

    # Implementation of ForeignCore.

    def _receive(self, data: bytes, now: float) -> None:
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return
            data = bytes(pending)
            pending.clear()
        at, end = 0, len(data)
        own, unpack, longest = self.uuid, HEAD.unpack_from, self._limits.longest_frame
        mine = (own, BROADCAST)
        report = self.happened.append
        unread = 0
        try:
            while True:
                if end - at < HEAD.size:
                    self._needed = self._look_ahead(data, at)
                    break
                length, to, sender = unpack(data, at)
                if not UUIDS_SIZE <= length <= longest:
                    check_length(length, longest)
                after = at + LENGTH.size + length
                if after > end:
                    self._needed = after - at
                    break
                payload = data[at + HEAD.size : after]
                at = after
                if sender == SERVER:
                    self._fault_received(decode_error(payload))
                elif to in mine:
                    report(RelayMessage(sender, payload, to != own))
                    unread += len(payload) + MESSAGE_COST
                else:
                    self.misdirected += 1
        finally:
            self._unread.charge(unread)
        if at < end:
            pending += data[at:] if at else data

    def _look_ahead(self, data: bytes, at: int) -> int:
        """Return how many bytes are needed to continue with an incomplete head."""
        if len(data) - at < LENGTH.size:
            return LENGTH.size
        check_length(LENGTH.unpack_from(data, at)[0], self._limits.longest_frame)
        return HEAD.size

    def _fault_received(self, fault: RelayFault) -> None:
        if fault.code != RelayCode.NOT_CONNECTED:
            self.fault = fault
        self.happened.append(fault)

    def _next_deadline(self) -> float:
        return self._last_byte + self._limits.idle_timeout

    def _handle_deadline(self, now: float) -> None:
        if now >= self._next_deadline():
            self._fail(CloseCode.TIMEOUT, "no traffic within idle_timeout", now)
