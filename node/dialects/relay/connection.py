"""The relay's side of one client's connection.

Each recipient gets its part of a received batch in one call. Senders wait for a slow client; a
client that doesn't read is dropped.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from parley._node.dialects.core import ByteQueue, ForeignCore
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import (
    BROADCAST,
    HEAD,
    LENGTH,
    NOBODY,
    TEXTS,
    UUID_SIZE,
    UUIDS_SIZE,
    RelayCode,
    encode_error,
    is_client_uuid,
    not_connected,
)
from parley._node.dialects.relay.router import Piece, RelayMember, Router, WaitingSenders
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.memory_budget import FRAMES_WEIGHT, SHARE, MemoryBudget

# Fractions of `write_buffer`. Above the first, senders wait for the client until at most the second
# remains; the client can read that much while they resume.
CROWDED_PART: Final = 2
CAUGHT_UP_PART: Final = 4


# The messages for each member from one call of `receive_data`.
Batch = dict[RelayMember, list[Piece]]

_HEAD_SIZE: Final = HEAD.size
_NO_HEAD: Final[tuple[()]] = ()  # matches no bytes
# More parts than this are copied together, so that single bytes don't cost a slice each.
MOST_PARTS: Final = 64
# The cost limit of one received chunk before other connections get a turn. A message to one target
# costs nothing, an error costs 1, and a broadcast costs 1 plus 1 for each MEMBERS_A_COST members.
TURN_COST: Final = 1_000
MEMBERS_A_COST: Final = 16


class _Everyone(Enum):
    """The target of a broadcast."""

    ELSE = "all but the sender"


class MessageSorter:
    """Sorts the messages of one client by recipient without copying them.

    Consecutive messages to one target form one slice. Errors go to `client`. `held` is the number
    of bytes that an incomplete message keeps in memory. `postponed` is the rest of a chunk that was
    too expensive.
    """

    __slots__ = (
        "_client",
        "_cost",
        "_have",
        "_joined",
        "_longest",
        "_parts",
        "_router",
        "_size",
        "_skip",
        "_start",
        "_to",
        "_too_short",
        "_uuid",
        "held",
        "postponed",
    )

    def __init__(self, uuid: bytes, client: RelayMember, router: Router, longest: int) -> None:
        self._uuid = uuid
        self._client = client
        self._router = router
        self._longest = longest
        code = RelayCode.INVALID_FORMAT
        self._too_short = encode_error(uuid, code, TEXTS[code])
        self._skip = 0  # remaining bytes of a message that was too short
        self._start = b""  # the incomplete head of a message
        self._size = 0  # size of the message with a complete, valid head, otherwise 0
        self._have = 0
        self._to = b""
        self._joined = bytearray()
        self._parts: list[Piece] = []
        self._cost = 0  # of the current chunk
        self.held = 0
        self.postponed = b""

    def target(self, data: bytes, at: int) -> bytes:
        """Return the recipient of the current message, or of the one at `at`; empty if unknown."""
        if self._size:
            return self._to
        if self._skip or self._start or len(data) - at < _HEAD_SIZE:
            return b""
        return data[at + LENGTH.size : at + LENGTH.size + UUID_SIZE]

    def sort(self, data: bytes, at: int, batch: Batch) -> str:
        """Add the messages and errors from index `at` on to `batch`.

        Returns:
            The reason why the connection must be closed, or an empty string.
        """
        self._cost = 0
        if self._skip:
            at = self._skip_to(data, at + self._skip)
        if self._start:
            at, reason = self._finish_head(data, at, batch)
            if reason:
                return reason
        if self._size:
            at = self._finish_message(data, at, batch)
        return self._sort_whole(data, at, batch) if at < len(data) else ""

    def _sort_whole(self, data: bytes, at: int, batch: Batch) -> str:
        """Sort the complete messages, and store the beginning of an incomplete one."""
        uuid, longest, find = self._uuid, self._longest, self._router.members.get
        startswith, unpack = data.startswith, HEAD.unpack_from
        view, end = memoryview(data), len(data)
        head: bytes | tuple[()] = _NO_HEAD
        size, refused, postponed = 0, False, False
        run = at  # index where the run to `target` begins
        target: RelayMember | _Everyone | None = None
        while True:
            if startswith(head, at):  # same length, target and sender as the message before
                at += size
                continue
            left = end - at
            if left < LENGTH.size:
                at -= size if left < 0 else 0  # the last one is incomplete
                break
            if self._cost >= TURN_COST:
                postponed = True
                break
            if left >= _HEAD_SIZE:
                length, to, sender = unpack(data, at)
            else:
                (length,) = LENGTH.unpack_from(data, at)
                to, sender = BROADCAST, uuid  # still unknown, so not an error yet
            if length < UUIDS_SIZE:
                self._add_run(batch, target, view[run:at], size)
                at = run = self._answer_short(data, at, batch)
                head, target = _NO_HEAD, None
                continue
            if length > longest or sender != uuid:
                refused = True
                break
            if left < LENGTH.size + length:
                break
            found = _Everyone.ELSE if to == BROADCAST else find(to)
            if found is not target or found is None:
                if run < at:
                    self._add_run(batch, target, view[run:at], size)
                run, target = at, found
            size = LENGTH.size + length
            head = data[at : at + _HEAD_SIZE]
            at += size
        if run < at:
            self._add_run(batch, target, view[run:at], size)
        if refused:
            return self._refuse(length, batch)
        if postponed:
            self.postponed = data[at:]
        elif end - at >= _HEAD_SIZE:
            self._begin(data, at)
        else:
            self._start = data[at:]
        return ""

    def _add_run(
        self, batch: Batch, target: RelayMember | _Everyone | None, run: memoryview, size: int
    ) -> None:
        """Add a run of messages to one target.

        The messages of an undeliverable run have the same head and `size` bytes each.
        """
        if target is _Everyone.ELSE:
            self._add_to_everyone(batch, [run])
        elif target is not None:
            pieces = batch.get(target)
            if pieces is None:
                batch[target] = [run]
            else:
                pieces.append(run)
        elif run:
            self._add_undeliverable(batch, bytes(run[4:20]), len(run) // size)

    def _add_to_everyone(self, batch: Batch, pieces: list[Piece]) -> None:
        client, members = self._client, self._router.members
        self._cost += 1 + len(members) // MEMBERS_A_COST
        for member in members.values():
            if member is not client:
                batch.setdefault(member, []).extend(pieces)

    def _add_undeliverable(self, batch: Batch, to: bytes, count: int) -> None:
        self._router.undeliverable += count
        self._cost += count
        if self._router.feedback:
            self._add_error(batch, not_connected(self._uuid, to) * count)

    def _add_error(self, batch: Batch, errors: bytes) -> None:
        batch.setdefault(self._client, []).append(errors)

    # Errors.

    def _answer_short(self, data: bytes, at: int, batch: Batch) -> int:
        """Answer and skip messages whose length is below 32."""
        count, last = 0, len(data) - LENGTH.size
        while at <= last and count < TURN_COST:
            (length,) = LENGTH.unpack_from(data, at)
            if length >= UUIDS_SIZE:
                break
            at += LENGTH.size + length
            count += 1
        self._cost += count
        self._add_error(batch, self._too_short * count)
        return self._skip_to(data, at)

    def _skip_to(self, data: bytes, at: int) -> int:
        self._skip = max(0, at - len(data))
        return at - self._skip

    def _refuse(self, length: int, batch: Batch) -> str:
        """Answer a message that ends the connection: it is too long, or its sender is forged."""
        code, reason = RelayCode.NOT_AUTHORISED, "the sender is not the connection's UUID"
        if length > self._longest:
            code = RelayCode.INVALID_FORMAT
            reason = f"a message of {length} bytes exceeds the limit of {self._longest}"
        self._add_error(batch, encode_error(self._uuid, code, TEXTS[code]))
        return reason

    # Messages that arrive in parts.

    def _finish_head(self, data: bytes, at: int, batch: Batch) -> tuple[int, str]:
        """Continue with a message whose head is incomplete."""
        before = len(self._start)
        start = self._start = self._start + data[at : at + _HEAD_SIZE - before]
        if len(start) < LENGTH.size:
            return len(data), ""
        (length,) = LENGTH.unpack_from(start)
        if (
            length < UUIDS_SIZE
        ):  # the length has just been completed, so `before` is less than its size
            self._start = b""
            self._add_error(batch, self._too_short)
            return self._skip_to(data, at + LENGTH.size + length - before), ""
        if length > self._longest:
            return at, self._refuse(length, batch)
        if len(start) < _HEAD_SIZE:
            return len(data), ""
        if start[-len(self._uuid) :] != self._uuid:
            return at, self._refuse(length, batch)
        self._start = b""
        self._begin(start, 0)
        return at + _HEAD_SIZE - before, ""

    def _begin(self, data: bytes, at: int) -> None:
        """Store the beginning of a message whose head is valid."""
        length, self._to, _ = HEAD.unpack_from(data, at)
        self._size = LENGTH.size + length
        self._have = len(data) - at
        self._parts.append(memoryview(data)[at:])
        self.held = len(data)

    def _finish_message(self, data: bytes, at: int, batch: Batch) -> int:
        """Continue with a message whose head is valid."""
        parts, rest = self._parts, self._size - self._have
        part = memoryview(data)[at : at + rest]
        if part:
            parts.append(part)
        if len(part) < rest:
            self._have += len(part)
            self.held += len(data)
            if len(parts) > MOST_PARTS:
                for piece in parts:
                    self._joined += piece  # because b"".join would need a second copy
                parts.clear()
                self.held = len(self._joined)
            return len(data)
        if self._joined:
            parts.insert(0, memoryview(self._joined))
        if self._to == BROADCAST:
            self._add_to_everyone(batch, parts)
        elif (member := self._router.members.get(self._to)) is not None:
            batch.setdefault(member, []).extend(parts)
        else:
            self._add_undeliverable(batch, self._to, 1)
        self.forget()
        return at + rest

    def forget(self) -> None:
        self._size = self._have = self.held = 0
        self._joined = bytearray()
        self._parts = []
        self._start = self.postponed = b""


class RelayDriver(Protocol):
    """The driver of a connection; called when another client's batch has reached its core."""

    def flush(self) -> None: ...

    def step(self) -> None: ...


class ClientIdentified:
    """Report: the client's UUID was accepted."""

    __slots__ = ()


class RelayConnection(ForeignCore):
    """One client, from the relay's view; `uuid` is empty until it is accepted.

    While more than half of `write_buffer` is queued for this client, the relay doesn't read from
    its senders. It resumes when at most a quarter is queued, or when the client's transport
    accepted nothing for `patience` seconds. The client is dropped when more than `write_buffer`
    bytes are queued and its transport accepts none. `driver` is None until the driver exists.
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
        "driver",
        "uuid",
    )

    def __init__(
        self, router: Router, limits: DialectLimits, now: float, total: MemoryBudget | None = None
    ) -> None:
        # `write_buffer` limits the bytes queued for this client; the account limits those of all
        # clients.
        account = MemoryBudget(2 * limits.write_buffer, total, SHARE)
        super().__init__(now, limits.write_buffer, account)
        self.outbox = self._slices = SliceQueue(limits.write_buffer, account)
        self.uuid = b""
        self.driver: RelayDriver | None = None
        self._router = router
        self._limits = limits
        self._sorter: MessageSorter | None = None
        self._uuid_start = b""
        self._uuid_deadline = now + limits.uuid_timeout
        self._crowded_size = limits.write_buffer // CROWDED_PART
        self._caught_up_size = limits.write_buffer // CAUGHT_UP_PART
        self._crowd = WaitingSenders(limits.patience)  # senders that wait for this client
        self._crowds: dict[WaitingSenders, None] = {}  # clients that this client waits for
        self._waited = False  # reading was paused, which doesn't count as idle time

    @property
    def wants_data(self) -> bool:
        return self._sorter is None or not (self._crowds or self._sorter.postponed)

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> WaitingSenders | None:
        if self.closing:
            return None
        slices, driver = self._slices, self.driver
        crowded = self._is_crowded()
        slices.extend(pieces, held)
        if not self._is_crowded():
            return None
        if driver is not None:
            driver.flush()  # many senders in one turn don't make it a slow reader
        if not self._is_crowded() or self.closing:
            return None
        short = self._crowd.lagging and not self.account.has_room()
        if crowded and (short or slices.size > self._write_buffer):
            self._router.dropped += 1
            self.abort(now, CloseCode.OVERLOADED, "the client does not read its messages")
            if driver is not None:
                driver.step()
            return None
        if self._crowd.lagging:
            return None
        self._router.crowded[self.uuid] = self._crowd
        return self._crowd

    def go_on(self, crowd: WaitingSenders) -> None:
        self._crowds.pop(crowd, None)
        if not self._crowds:
            self._waited = True
            self.outbox.waker.changed()

    def data_to_send(self, now: float) -> bytes:
        data = super().data_to_send(now)
        if data and (self._crowd.lagging or self.uuid in self._router.crowded):
            self._moved(now)
        return data

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End immediately; after a bug, with an error message."""
        if code is CloseCode.INTERNAL_ERROR and not self.closing:
            self.outbox.clear()
            self._say(RelayCode.INTERNAL_ERROR, self.uuid or NOBODY)
            self._fail(code, reason, now)
        else:
            super().abort(now, code, reason)

    # Implementation of ForeignCore.

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
        """Return whether senders must wait for this client."""
        return self._slices.size > self._crowded_size or not self.account.has_room()

    def _sort(self, sorter: MessageSorter, data: bytes, at: int, now: float) -> None:
        """Distribute the data from index `at` on, unless senders must wait for its recipient."""
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
        """Wait if too much is queued for the next recipient.

        Without this, many senders that each send once could cause a client to be dropped although
        it reads.
        """
        for uuid, crowd in self._router.crowded.items():
            if uuid == target or (target == BROADCAST and uuid != self.uuid):
                self._wait_in(crowd, now)

    def _wait_in(self, crowd: WaitingSenders, now: float) -> None:
        crowd.join(self, now)
        self._crowds[crowd] = None

    def _moved(self, now: float) -> None:
        if self._slices.size <= self._caught_up_size:
            self._router.crowded.pop(self.uuid, None)
            self._crowd.disperse()
        else:
            self._crowd.moved(now)

    def _let_in(self, uuid: bytes, now: float) -> MessageSorter | None:
        """Accept the first 16 bytes as the client's UUID, or reject it."""
        if not is_client_uuid(uuid):
            code = RelayCode.INVALID_UUID
        elif uuid in self._router.members:
            code = RelayCode.ALREADY_CONNECTED
        else:
            self.uuid = uuid
            self._router.join(uuid, self)
            self._sorter = MessageSorter(uuid, self, self._router, self._limits.longest_frame)
            self.happened.append(ClientIdentified())
            return self._sorter
        # A client with an invalid UUID has no address, so this error goes to the nil UUID.
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
            return self._last_byte  # immediately, in the loop's next iteration
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
            self._fail(CloseCode.TIMEOUT, "no traffic within idle_timeout", now)
        else:
            self._say(RelayCode.INVALID_UUID, NOBODY)
            self._fail(CloseCode.TIMEOUT, "no UUID within uuid_timeout", now)

    def _end(self, code: int, reason: str, *, remote: bool = True) -> None:
        if self._sorter is not None:
            self._router.leave(self.uuid, self)
            self._sorter.forget()
        for crowd in self._crowds:
            crowd.leave(self)
        self._crowds.clear()
        self._crowd.disperse()
        super()._end(code, reason, remote=remote)


# The memory that a slice uses in addition to its bytes.
SLICE_COST: Final = 200


class SliceQueue(ByteQueue):
    """A `ByteQueue` of slices of received data from many senders.

    A small slice can keep a large buffer in memory. *Loose* slices, at the end of the queue, are
    joined into one copy once they may keep too much: more than twice their size and more than half
    of `write_buffer`.
    """

    __slots__ = ("_held", "_loose", "_most_held")

    def __init__(self, write_buffer: int, account: MemoryBudget) -> None:
        super().__init__(account)
        self._most_held = write_buffer // 2
        self._loose = 0
        self._held = 0  # upper limit of the bytes that loose slices keep in memory

    def extend(self, slices: Sequence[bytes | memoryview], held: int) -> None:
        """Queue slices of buffers that have `held` bytes in total."""
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
        data = super().take(limit)
        if not self.count:
            self._loose = self._held = 0
        return data

    def clear(self) -> None:
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
