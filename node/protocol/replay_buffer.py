"""The bytes that a session sent and the peer hasn't acknowledged (docs/protocol.md section 17).

Positions count the bytes of our frames; 0 is the first byte after our own Proof. A resumed session
sends the bytes again unchanged, so no event is encrypted twice.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from parley._node.protocol.errors import overloaded, violation
from parley._node.protocol.limits import FRAME_HEADER_SIZE, RESUME_EXEMPT, TELL_BYTES
from parley._node.protocol.memory_budget import MemoryBudget

# Held bytes are charged in steps of this size: a flush that is soon acknowledged costs nothing.
_CHARGE_STEP: Final = 64 * 1024


class ReplayBuffer:
    """The bytes from `told`, the last acknowledged position, to `sent`.

    While `buffer` bytes are held, only events of stream 0 and Open are encrypted. Bytes in `again`
    are sent before new ones. Held bytes are charged to `account`.
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
        # The longest event, which may be begun while there is any room, and `control_buffer`.
        self._exempt = exempt
        self._skip = skip  # bytes of the handshake that still wait for the transport
        self._account = account
        self.chunks: list[bytes] = []
        self._done = 0  # bytes of the first chunk that are told
        self.again: tuple[bytes, ...] = ()  # to be sent again, in order
        self._expected = 1  # how many Received may come that tell little: one for each transport
        self._last = 0  # what the last Received told
        self.sent = self.told = 0
        self._paid = _CHARGE_STEP

    @property
    def held(self) -> int:
        """Number of held bytes."""
        return self.sent - self.told

    @property
    def uncharged(self) -> int:
        """Held bytes that aren't charged, because they are few."""
        held = self.held
        return held if held <= _CHARGE_STEP else 0

    def add(self, data: bytes) -> None:
        """Keep bytes that are handed to the transport."""
        if self._skip:
            handshake = min(self._skip, len(data))
            self._skip -= handshake
            data = data[handshake:]
        self.chunks.append(data)
        self.sent = sent = self.sent + len(data)
        if sent - self.told > self._paid:
            self._charge()

    def writable(self, waiting: int) -> int:
        """Return how many bytes may be encrypted while `waiting` ones wait, or less than 0.

        Raises:
            RemoteProtocolError: `overloaded`, the other side never tells what it took.
        """
        room = self.buffer + self.told - self.sent - waiting
        if room < -(RESUME_EXEMPT + FRAME_HEADER_SIZE + self._exempt):
            raise overloaded(f"it does not tell what it took: {self.held} bytes are kept")
        return room

    def told_more(self, position: int) -> bool:
        """Take the position of a Received; return False if it acknowledged little, and wasn't
        expected. Raises as `release`."""
        little = position - self._last < TELL_BYTES
        if position < self._last:
            raise violation(f"a position that falls from {self._last} to {position}")
        self._last = position
        # One that was sent again may tell less than a Resume or Resumed told meanwhile.
        if position > self.told:
            self.release(position)
        if little and self._expected:
            self._expected -= 1
            return True
        return not little

    def release(self, position: int) -> None:
        """Forget the bytes before `position`, which the peer acknowledged.

        Raises:
            RemoteProtocolError: `protocol-error`, it never sent so, or told more before.
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
        `position`; raises as `release`."""
        self.release(position)
        self._expected += 1
        missing = self.missing()
        self.again = (first, *missing) if first else tuple(missing)

    def missing(self) -> list[bytes]:
        """Return all held bytes, in order."""
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
        """Stop sending again: nobody knows how far that got."""
        self.again = ()

    def end(self) -> None:
        """Release the charge: a closed session's bytes aren't charged."""
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
