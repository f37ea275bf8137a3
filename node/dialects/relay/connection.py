"""The relay's side of one client's connection: its UUID, then its messages to others.

Each member gets what a received batch has for it in one call. Senders wait for a client that
reads; a client that does not read is dropped. The router knows who else is connected.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from parley._node.dialects.core import ByteQueue, ForeignCore
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import (
    BROADCAST,
    NOBODY,
    TEXTS,
    UUID_SIZE,
    RelayCode,
    encode_error,
    is_client_uuid,
)
from parley._node.dialects.relay.router import Piece, RelayCrowd, Router
from parley._node.dialects.relay.sorter import Batch, Sorter
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.memory_budget import FRAMES_WEIGHT, SHARE, MemoryBudget

# Parts of `write_buffer`: above the first, senders wait for a client until no more than the
# second is left, which it can read while they are woken.
CROWDED_PART: Final = 2
CAUGHT_UP_PART: Final = 4


class RelayShell(Protocol):
    """The driver of a connection, for when another connection's batch has reached its core."""

    def flush(self) -> None:
        """Write now what the transport takes."""

    def settle(self) -> None:
        """Hand on reports; then flush, or close."""


class ClientIdentified:
    """Report: the client sent its UUID and is accepted."""

    __slots__ = ()


class RelayConnection(ForeignCore):
    """One client, as the relay sees it; `uuid` is empty until it is accepted.

    While more than half of `write_buffer` waits for it, clients that send to it are not read:
    until no more than a quarter waits, or its transport took nothing for `patience` seconds. It
    is dropped, and counted, when more than `write_buffer` bytes wait for it and its transport
    takes none of them. `shell` is its driver, once there is one.
    """

    __slots__ = (
        "_caught_up_size",
        "_crowd",
        "_crowded_size",
        "_crowds",
        "_limits",
        "_router",
        "_slices",
        "_sorter",
        "_uuid_deadline",
        "_uuid_start",
        "_waited",
        "shell",
        "uuid",
    )

    def __init__(
        self, router: Router, limits: DialectLimits, now: float, total: MemoryBudget | None = None
    ) -> None:
        # What waits for it is bounded below; this account bounds what waits for all clients.
        account = MemoryBudget(2 * limits.write_buffer, total, SHARE)
        super().__init__(now, limits.write_buffer, account)
        self.outbox = self._slices = SliceQueue(limits.write_buffer, account)
        self.uuid = b""
        self.shell: RelayShell | None = None
        self._router = router
        self._limits = limits
        self._sorter: Sorter | None = None
        self._uuid_start = b""
        self._uuid_deadline = now + limits.uuid_timeout
        self._crowded_size = limits.write_buffer // CROWDED_PART
        self._caught_up_size = limits.write_buffer // CAUGHT_UP_PART
        self._crowd = RelayCrowd(limits.patience)  # senders that wait for it
        self._crowds: dict[RelayCrowd, None] = {}  # where it waits
        self._waited = False  # so that it was not read, which is not idleness

    @property
    def wants_data(self) -> bool:
        """Whether all that came is sorted, and no recipient has to be waited for."""
        return self._sorter is None or not (self._crowds or self._sorter.postponed)

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> RelayCrowd | None:
        """Take messages for this client, as a `Member`."""
        if self.closing:
            return None
        slices, shell = self._slices, self.shell
        crowded = self._is_crowded()
        slices.extend(pieces, held)
        if not self._is_crowded():
            return None
        if shell is not None:
            shell.flush()  # much in one turn, from many, does not make it a slow reader
        if not self._is_crowded() or self.closing:
            return None
        short = self._crowd.lagging and not self.account.has_room()
        if crowded and (short or slices.size > self._write_buffer):
            self._router.dropped += 1
            self.abort(now, CloseCode.OVERLOADED, "it does not read what is sent to it")
            if shell is not None:
                shell.settle()
            return None
        if self._crowd.lagging:
            return None
        self._router.crowded[self.uuid] = self._crowd
        return self._crowd

    def go_on(self, crowd: RelayCrowd) -> None:
        """A client need not be waited for any more, as a `WaitingSender`."""
        self._crowds.pop(crowd, None)
        if not self._crowds:
            self._waited = True
            self.outbox.waker.changed()

    def data_to_send(self, now: float) -> bytes:
        """As `ForeignCore.data_to_send`; then senders that wait for it may go on."""
        data = super().data_to_send(now)
        if data and (self._crowd.lagging or self.uuid in self._router.crowded):
            self._moved(now)
        return data

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End now; for a mistake of ours, with an error that says so."""
        if code is CloseCode.INTERNAL_ERROR and not self.closing:
            self.outbox.clear()
            self._say(RelayCode.INTERNAL_ERROR, self.uuid or NOBODY)
            self._fail(code, reason, now)
        else:
            super().abort(now, code, reason)

    # For ForeignCore.

    def _receive(self, data: bytes, now: float) -> None:
        at, sorter = 0, self._sorter
        self._waited = False
        if sorter is None:
            at = UUID_SIZE - len(self._uuid_start)
            self._uuid_start += data[:at]
            if len(self._uuid_start) < UUID_SIZE:
                return
            sorter = self._let_in(self._uuid_start, now)
            if sorter is None:
                return
        self._sort(sorter, data, at, now)

    def _is_crowded(self) -> bool:
        """Whether senders are to wait for it."""
        return self._slices.size > self._crowded_size or not self.account.has_room()

    def _sort(self, sorter: Sorter, data: bytes, at: int, now: float) -> None:
        """Distribute what `data` has from `at` on, unless it is for a crowded client."""
        if sorter.postponed:
            data, sorter.postponed = sorter.postponed + data, b""
        if self._router.crowded and not self._crowds:
            self._wait_for(sorter.target(data, at), now)
            if self._crowds:
                sorter.postponed = data[at:]
                return
        batch: Batch = {}
        held = len(data) + sorter.held
        reason = sorter.sort(data, at, batch)
        for member, pieces in batch.items():
            crowd = member.deliver(pieces, held, now)
            if crowd is not None and not self.closing:
                self._wait_in(crowd, now)
        if reason:
            self._fail(CloseCode.PROTOCOL_ERROR, reason, now)

    def _wait_for(self, target: bytes, now: float) -> None:
        """Wait if too much waits for the recipient of the next message. Otherwise many senders
        that each send once before they wait could have a client dropped although it reads."""
        for uuid, crowd in self._router.crowded.items():
            if uuid == target or (target == BROADCAST and uuid != self.uuid):
                self._wait_in(crowd, now)

    def _wait_in(self, crowd: RelayCrowd, now: float) -> None:
        crowd.join(self, now)
        self._crowds[crowd] = None

    def _moved(self, now: float) -> None:
        """Its transport took something."""
        if self._slices.size <= self._caught_up_size:
            self._router.crowded.pop(self.uuid, None)
            self._crowd.disperse()
        else:
            self._crowd.moved(now)

    def _let_in(self, uuid: bytes, now: float) -> Sorter | None:
        """The first 16 bytes have come: accept them as the client's UUID, or refuse it."""
        if not is_client_uuid(uuid):
            code = RelayCode.INVALID_UUID
        elif uuid in self._router.members:
            code = RelayCode.ALREADY_CONNECTED
        else:
            self.uuid = uuid
            self._router.join(uuid, self)
            self._sorter = Sorter(uuid, self, self._router, self._limits.longest_frame)
            self.happened.append(ClientIdentified())
            return self._sorter
        # An invalid UUID cannot be addressed: that error goes to the nil UUID.
        self._say(code, NOBODY if code is RelayCode.INVALID_UUID else uuid)
        self._fail(CloseCode.PROTOCOL_ERROR, TEXTS[code], now)
        return None

    def _say(self, code: RelayCode, to: bytes) -> None:
        self.outbox.put(encode_error(to, code, TEXTS[code]))

    def _next_deadline(self) -> float:
        if self._sorter is None:
            return self._uuid_deadline
        if self._crowds:
            return min(crowd.deadline for crowd in self._crowds)
        if self._sorter.postponed:
            return self._last_byte  # at once, in the loop's next turn
        return self._last_byte + self._limits.idle_timeout

    def _handle_deadline(self, now: float) -> None:
        if self._crowds:
            self._router.give_up([crowd for crowd in self._crowds if now >= crowd.deadline])
        if self._waited:
            self._waited = False
            self._last_byte = max(self._last_byte, now)
        if self._crowds or now < self._next_deadline():
            return
        if self._sorter is not None and self._sorter.postponed:
            self._sort(self._sorter, b"", 0, now)
            return
        if self.uuid:
            self._fail(CloseCode.TIMEOUT, "nothing came or went for long", now)
        else:
            self._say(RelayCode.INVALID_UUID, NOBODY)
            self._fail(CloseCode.TIMEOUT, "no UUID in time", now)

    def _end(self, code: int, reason: str, *, remote: bool = True) -> None:
        if self._sorter is not None:
            self._router.leave(self.uuid, self)
            self._sorter.forget()
        for crowd in self._crowds:
            crowd.leave(self)
        self._crowds.clear()
        self._crowd.disperse()
        super()._end(code, reason, remote=remote)


# The memory that a slice takes besides the bytes that it shows.
SLICE_COST: Final = 200


class SliceQueue(ByteQueue):
    """A `ByteQueue` of slices of what was received, from many senders.

    However small the slices are, the buffers that they keep alive stay within twice their bytes
    and half of `write_buffer`. Slices at the end of the queue that were not yet checked for that
    are *loose*: once they may hold more, they are joined into one copy. A client that reads gets
    its messages copied once, into what is written.
    """

    __slots__ = ("_held", "_loose", "_most_held")

    def __init__(self, write_buffer: int, account: MemoryBudget) -> None:
        super().__init__(account)
        self._most_held = write_buffer // 2
        self._loose = 0
        self._held = 0  # by the loose ones, at most

    def extend(self, slices: Sequence[bytes | memoryview], held: int) -> None:
        """Queue slices of buffers of `held` bytes in all."""
        count = len(slices)
        self._queue.extend(slices)
        size = sum(map(len, slices))
        self._account.charge(size + FRAMES_WEIGHT * count)
        self.count += count
        self.size += size
        self._loose += count
        self._held += held + SLICE_COST * count
        if self._held > self._most_held:
            self._settle()
        waker = self.waker
        if self.count >= waker.count or self.size >= waker.size:
            waker.wake()

    def take(self, limit: int) -> bytes:
        """As `ByteQueue.take`."""
        data = super().take(limit)
        if not self.count:
            self._loose = self._held = 0
        return data

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._loose = self._held = 0

    def _settle(self) -> None:
        queue = self._queue
        loose = [queue.pop() for _ in range(min(self._loose, self.count))]
        loose.reverse()
        if self._held > 2 * sum(map(len, loose)):
            self._account.release(FRAMES_WEIGHT * (len(loose) - 1))
            self.count -= len(loose) - 1
            loose = [b"".join(loose)]
        queue.extend(loose)
        self._loose = self._held = 0
