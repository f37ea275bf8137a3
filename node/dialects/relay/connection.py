"""The relay's side of one client's connection: its UUID, then its messages to others.

One rule: each member is told of a received batch once, whatever the batch has for it. A
client that does not read delays nobody: it is dropped. Who else is there is the router's.
"""

from collections.abc import Sequence
from typing import Protocol

from node.dialects.core import ForeignCore
from node.dialects.limits import RelayLimits
from node.dialects.relay.codec import (
    NOBODY,
    TEXTS,
    UUID_SIZE,
    RelayCode,
    encode_error,
    is_client_uuid,
)
from node.dialects.relay.queue import Slices
from node.dialects.relay.router import Piece, Router
from node.dialects.relay.sorting import Batch, Sorter
from node.protocol.codes import CloseCode


class Shell(Protocol):
    """The driver, of which a core that another's batch reaches asks to be looked at."""

    def touch(self) -> None:
        """Flush in the loop's next turn, or now if much waits."""

    def flush(self) -> None:
        """Write now what the transport takes."""

    def settle(self) -> None:
        """Hand on reports; then flush, or close."""


class ClientIdentified:
    """Report: the client said its UUID and is let in."""

    __slots__ = ()


class RelayConnection(ForeignCore):
    """One client, as the relay sees it; `uuid` is empty until it is let in.

    It is dropped, and counted, when more than `write_buffer` bytes wait for it and its
    transport takes none of them. `shell` is its driver, once there is one.
    """

    __slots__ = (
        "_limits",
        "_router",
        "_slices",
        "_sorter",
        "_uuid_deadline",
        "_uuid_start",
        "shell",
        "uuid",
    )

    def __init__(self, router: Router, limits: RelayLimits, now: float) -> None:
        super().__init__(now, limits.write_buffer)
        self.outbox = self._slices = Slices(limits.write_buffer)
        self.uuid = b""
        self.shell: Shell | None = None
        self._router = router
        self._limits = limits
        self._sorter: Sorter | None = None
        self._uuid_start = b""
        self._uuid_deadline = now + limits.uuid_timeout

    @property
    def wants_data(self) -> bool:
        """Whether what came is sorted. Who does not read is dropped, and not waited for."""
        return self._sorter is None or not self._sorter.postponed

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> None:
        """Take messages for this client, as a `Member`."""
        if self.closing:
            return
        slices, shell = self._slices, self.shell
        slices.extend(pieces, held)
        if slices.size <= self._write_buffer:
            if shell is not None:
                shell.touch()
            return
        if shell is not None:
            shell.flush()  # what many send in one turn makes nobody a slow reader
        if slices.size > self._write_buffer and not self.closing:
            self._router.dropped += 1
            self.abort(now, CloseCode.OVERLOADED, "it does not read what is sent to it")
            if shell is not None:
                shell.settle()

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End now; by a mistake of ours, with the word that there was one."""
        if code is CloseCode.INTERNAL_ERROR and not self.closing:
            self.outbox.clear()
            self._say(RelayCode.INTERNAL_ERROR, self.uuid or NOBODY)
            self._fail(code, reason, now)
        else:
            super().abort(now, code, reason)

    # For ForeignCore.

    def _receive(self, data: bytes, now: float) -> None:
        at, sorter = 0, self._sorter
        if sorter is None:
            at = UUID_SIZE - len(self._uuid_start)
            self._uuid_start += data[:at]
            if len(self._uuid_start) < UUID_SIZE:
                return
            sorter = self._let_in(self._uuid_start, now)
            if sorter is None:
                return
        self._sort(sorter, data, at, now)

    def _sort(self, sorter: Sorter, data: bytes, at: int, now: float) -> None:
        """Hand on what `data` has from `at` on."""
        if sorter.postponed:
            data, sorter.postponed = sorter.postponed + data, b""
        batch: Batch = {}
        held = len(data) + sorter.held
        reason = sorter.sort(data, at, batch)
        for member, pieces in batch.items():
            member.deliver(pieces, held, now)
        if reason:
            self._fail(CloseCode.PROTOCOL_ERROR, reason, now)

    def _let_in(self, uuid: bytes, now: float) -> Sorter | None:
        """The first 16 bytes are there: take them for who it is, or refuse it."""
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
        # Nobody may be called as in the former case: that error is addressed to nobody.
        self._say(code, NOBODY if code is RelayCode.INVALID_UUID else uuid)
        self._fail(CloseCode.PROTOCOL_ERROR, TEXTS[code], now)
        return None

    def _say(self, code: RelayCode, to: bytes) -> None:
        self.outbox.put(encode_error(to, code, TEXTS[code]))

    def _next_deadline(self) -> float:
        if self._sorter is None:
            return self._uuid_deadline
        if self._sorter.postponed:
            return self._last_byte  # at once, in the loop's next turn
        return self._last_byte + self._limits.idle_timeout

    def _handle_deadline(self, now: float) -> None:
        if now < self._next_deadline():
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
        super()._end(code, reason, remote=remote)
