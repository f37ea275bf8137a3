"""What a session has sent and the other side has not told that it took: kept, as it was written.

Positions count the bytes of our direction's frames; 0 is the first byte after our own Proof.
A resumed session sends them again unchanged, so nothing is encrypted twice (docs/protocol.md
section 17).
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from parley._node.protocol.errors import overloaded, violation
from parley._node.protocol.limits import FRAME_HEADER_SIZE, RESUME_EXEMPT, TELL_BYTES
from parley._node.protocol.memory_budget import MemoryBudget

# What is kept is charged in steps of so many: a flush that is soon told costs nothing.
_CHARGE_STEP: Final = 64 * 1024


class ReplayBuffer:
    """The bytes from `told` on, the position that the other side told last, to `sent`.

    While `buffer` bytes are held nothing but events of stream 0 and Open is encrypted. `chunks` are
    as they were written; what is in `again` goes before what is new. What is held is charged to
    `account`: beyond `paid` bytes `added` is to be told.
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
        self.again: tuple[bytes, ...] = ()  # what is to be sent again, in order
        self._expected = 1  # how many Received may come that tell little: one for each transport
        self._last = 0  # what the last Received told
        self.sent = self.told = 0
        self._paid = _CHARGE_STEP

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return self.sent - self.told

    @property
    def uncharged(self) -> int:
        """Bytes that are kept and not charged: few enough to be free."""
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

    def check_room(self, room: int) -> int:
        """Less may be encrypted than the transport takes: `room` bytes; or fewer than none.

        Raises:
            RemoteProtocolError: `overloaded`, the other side never tells what it took.
        """
        if room < -(RESUME_EXEMPT + FRAME_HEADER_SIZE + self._exempt):
            raise overloaded(f"it does not tell what it took: {self.held} bytes are kept")
        return room

    def told_more(self, position: int) -> bool:
        """A Received came; False if it told little, and none was to be expected. Raises as
        `release`."""
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
        """The other side has taken all before `position`.

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
        """Begin again on a new transport: `first`, which does not count, then
        what comes after `position`; raises as `release`."""
        self.release(position)
        self._expected += 1
        missing = self.missing()
        self.again = (first, *missing) if first else tuple(missing)

    def missing(self) -> list[bytes]:
        """All that is kept, in order."""
        chunks = self.chunks[:]
        if self._done:
            chunks[0] = chunks[0][self._done :]
        return chunks

    def take_again(self, limit: float) -> bytes:
        """The next bytes to send again, `limit` at least unless there are fewer."""
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
        """The session is over: what its remains keep is not charged to it."""
        self._account.release(max(0, self._paid - _CHARGE_STEP))
        self._paid = _CHARGE_STEP

    def _charge(self) -> None:
        """Charge for what is held, in steps, the first of which is free."""
        held = self.sent - self.told
        paid = held + _CHARGE_STEP if held > _CHARGE_STEP else _CHARGE_STEP
        if paid > self._paid:
            self._account.charge(paid - self._paid)
        else:
            self._account.release(self._paid - paid)
        self._paid = paid
