"""The bytes that a session has sent and the peer hasn't acknowledged (docs/protocol.md section 17).

Positions count bytes of our frames; 0 is the first byte after our own Proof. A resumed session
sends the bytes again unchanged, so an event is never encrypted twice.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from parley._node.protocol.errors import overloaded, violation
from parley._node.protocol.limits import FRAME_HEADER_SIZE, RESUME_EXEMPT, TELL_BYTES
from parley._node.protocol.memory_budget import MemoryBudget

# Buffered bytes are charged in steps of this size, so that a flush that is soon acknowledged isn't
# charged.
_CHARGE_STEP: Final = 64 * 1024


class ReplayBuffer:
    """The bytes from `told`, the last acknowledged position, to `sent`.

    While `buffer` bytes are unacknowledged, only events of stream 0 and Open are encrypted. Bytes
    in `again` are sent before new ones. Buffered bytes are charged to `account`.
    """

    __slots__ = (
        "_account",
        "_done",
        "_exempt",
        "_expected",
        "_last",
        "_paid",
        "_skip",
        "again",
        "buffer",
        "chunks",
        "sent",
        "told",
    )

    def __init__(self, buffer: int, exempt: int, skip: int, account: MemoryBudget) -> None:
        self.buffer = buffer
        # The longest event, which may begin while any space is left, and `control_buffer`.
        self._exempt = exempt
        self._skip = skip  # bytes of the handshake that still wait for the transport
        self._account = account
        self.chunks: list[bytes] = []
        self._done = 0  # acknowledged bytes of the first chunk
        self.again: tuple[bytes, ...] = ()  # to be sent again, in order
        self._expected = 1  # how many Received may acknowledge little: one for each transport
        self._last = 0  # the position in the last Received
        self.sent = self.told = 0
        self._paid = _CHARGE_STEP

    @property
    def held(self) -> int:
        """Number of buffered bytes."""
        return self.sent - self.told

    @property
    def uncharged(self) -> int:
        """Buffered bytes that aren't charged because they are few."""
        held = self.held
        return held if held <= _CHARGE_STEP else 0

    def add(self, data: bytes) -> None:
        """Store bytes that are passed to the transport."""
        if self._skip:
            handshake = min(self._skip, len(data))
            self._skip -= handshake
            data = data[handshake:]
        self.chunks.append(data)
        self.sent = sent = self.sent + len(data)
        if sent - self.told > self._paid:
            self._charge()

    def writable(self, waiting: int) -> int:
        """Return how many bytes may be encrypted while `waiting` bytes wait; less than 0 if none.

        Raises:
            RemoteProtocolError: `overloaded`: the peer doesn't acknowledge.
        """
        room = self.buffer + self.told - self.sent - waiting
        if room < -(RESUME_EXEMPT + FRAME_HEADER_SIZE + self._exempt):
            raise overloaded(f"the peer does not acknowledge: {self.held} bytes are stored")
        return room

    def told_more(self, position: int) -> bool:
        """Process the position in a Received; raises the same errors as `release`. Return False if
        it acknowledged little and was unexpected.
        """
        little = position - self._last < TELL_BYTES
        if position < self._last:
            raise violation(f"the position decreases from {self._last} to {position}")
        self._last = position
        # A Received that was sent again can be older than the position in a Resume or Resumed.
        if position > self.told:
            self.release(position)
        if little and self._expected:
            self._expected -= 1
            return True
        return not little

    def release(self, position: int) -> None:
        """Delete the bytes before `position`, which the peer acknowledged.

        Raises:
            RemoteProtocolError: `protocol-error`: the position wasn't sent yet, or is lower
                than before.
        """
        if not self.told <= position <= self.sent:
            raise violation(f"position {position} is not within {self.told}..{self.sent}")
        starts = list(accumulate(map(len, self.chunks), initial=self.told - self._done))
        count = bisect_right(starts, position) - 1
        del self.chunks[:count]
        self.told = position
        self._done = position - starts[count]
        if self._paid > _CHARGE_STEP:
            self._charge()

    def rewind(self, position: int, first: bytes) -> None:
        """Send again over a new transport: `first`, which doesn't count, then the bytes after
        `position`; raises the same errors as `release`.
        """
        self.release(position)
        self._expected += 1
        missing = self.missing()
        self.again = (first, *missing) if first else tuple(missing)

    def missing(self) -> list[bytes]:
        """Return all buffered bytes, in order."""
        chunks = self.chunks[:]
        if self._done:
            chunks[0] = chunks[0][self._done :]
        return chunks

    def take_again(self, limit: float) -> bytes:
        """Return the next bytes to send again, at least `limit` if there are as many."""
        again, count = self.again, 0
        while count < len(again) and limit > 0:
            limit -= len(again[count])
            count += 1
        self.again = again[count:]
        return b"".join(again[:count])

    def transport_lost(self) -> None:
        """Stop sending again, because it is unknown how many bytes arrived."""
        self.again = ()

    def end(self) -> None:
        """Release the charge, because a closed session's bytes aren't charged."""
        self._account.release(max(0, self._paid - _CHARGE_STEP))
        self._paid = _CHARGE_STEP

    def _charge(self) -> None:
        """Charge for held bytes in steps, the first of which is free."""
        held = self.sent - self.told
        paid = held + _CHARGE_STEP if held > _CHARGE_STEP else _CHARGE_STEP
        if paid > self._paid:
            self._account.charge(paid - self._paid)
        else:
            self._account.release(self._paid - paid)
        self._paid = paid
