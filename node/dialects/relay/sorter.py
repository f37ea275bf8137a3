"""Sorts what a client of the relay sent, by recipient.

Bytes are read once and not copied: a run of messages to one target is one slice, and a message
that came in several parts is kept as slices of them.
"""

from enum import Enum
from typing import Final

from parley._node.dialects.relay.codec import (
    BROADCAST,
    HEAD,
    LENGTH,
    TEXTS,
    UUID_SIZE,
    UUIDS_SIZE,
    RelayCode,
    encode_error,
    not_connected,
)
from parley._node.dialects.relay.router import Piece, RelayMember, Router

# What each member gets from one receive.
Batch = dict[RelayMember, list[Piece]]

_HEAD_SIZE: Final = HEAD.size
_NO_HEAD: Final[tuple[()]] = ()  # matches no bytes
# More parts than this are copied together: single bytes must not cost a slice each.
MOST_PARTS: Final = 64
# What one receive may cost before other connections have their turn: messages to one target
# cost nothing, a mistake costs 1, a broadcast 1 and another 1 for every so many members.
TURN_COST: Final = 1_000
MEMBERS_A_COST: Final = 16


class _Everyone(Enum):
    """The target of a broadcast."""

    ELSE = "all but the sender"


class Sorter:
    """Sorts what one client sends; `uuid` is its own, and errors go to `client`.

    `held` is how many bytes of earlier receives an incomplete message keeps; `postponed` is
    what is left of a receive that cost too much, and is to be sorted soon.
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
        self._skip = 0  # bytes still to come of a message that was too short
        self._start = b""  # of a message whose head is incomplete
        self._size = 0  # of a message whose head is complete and valid, otherwise 0
        self._have = 0
        self._to = b""
        self._joined = bytearray()
        self._parts: list[Piece] = []
        self._cost = 0  # of this receive
        self.held = 0
        self.postponed = b""

    def target(self, data: bytes, at: int) -> bytes:
        """The recipient of the message that has begun, or that `data` has at `at`; empty if it
        is not known yet."""
        if self._size:
            return self._to
        if self._skip or self._start or len(data) - at < _HEAD_SIZE:
            return b""
        return data[at + LENGTH.size : at + LENGTH.size + UUID_SIZE]

    def sort(self, data: bytes, at: int, batch: Batch) -> str:
        """Add to `batch` what `data` has from `at` on, messages and errors, in order.

        Returns:
            Why the connection has to be closed after that; empty if it goes on.
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
        """Sort complete messages, and keep the beginning of an incomplete one."""
        uuid, longest, find = self._uuid, self._longest, self._router.members.get
        startswith, unpack = data.startswith, HEAD.unpack_from
        view, end = memoryview(data), len(data)
        head: bytes | tuple[()] = _NO_HEAD
        size, refused, postponed = 0, False, False
        run = at  # where the run to `target` began
        target: RelayMember | _Everyone | None = None
        while True:
            if startswith(head, at):  # length, target and sender are as before
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
                to, sender = BROADCAST, uuid  # not known yet, so not wrong
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
        """Add messages to one target; those without a target have `size` bytes each and the
        same head."""
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
        """Answer messages whose length is below 32, and skip them."""
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
        code, reason = RelayCode.NOT_AUTHORISED, "a sender that is not the connection's UUID"
        if length > self._longest:
            code = RelayCode.INVALID_FORMAT
            reason = f"a message of {length} bytes; at most {self._longest}"
        self._add_error(batch, encode_error(self._uuid, code, TEXTS[code]))
        return reason

    # A message in parts.

    def _finish_head(self, data: bytes, at: int, batch: Batch) -> tuple[int, str]:
        """Go on with a message whose head is incomplete."""
        before = len(self._start)
        start = self._start = self._start + data[at : at + _HEAD_SIZE - before]
        if len(start) < LENGTH.size:
            return len(data), ""
        (length,) = LENGTH.unpack_from(start)
        if length < UUIDS_SIZE:  # known only now, so `before` is less than the length's size
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
        """Keep a message whose head is valid, from `at` on."""
        length, self._to, _ = HEAD.unpack_from(data, at)
        self._size = LENGTH.size + length
        self._have = len(data) - at
        self._parts.append(memoryview(data)[at:])
        self.held = len(data)

    def _finish_message(self, data: bytes, at: int, batch: Batch) -> int:
        """Go on with a message whose head is valid."""
        parts, rest = self._parts, self._size - self._have
        part = memoryview(data)[at : at + rest]
        if part:
            parts.append(part)
        if len(part) < rest:
            self._have += len(part)
            self.held += len(data)
            if len(parts) > MOST_PARTS:
                for piece in parts:
                    self._joined += piece  # rather than b"".join, which would hold a second copy
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
        """Forget an incomplete message."""
        self._size = self._have = self.held = 0
        self._joined = bytearray()
        self._parts = []
        self._start = self.postponed = b""
