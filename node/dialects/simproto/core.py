"""One SimProto connection, on either side: dialogs of requests and responses.

An id belongs to one dialog until its response has arrived. A late response, or any response without
a dialog, ends the connection. Source: the SimProto document, 'Dialog Layer'.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from parley._node.dialects.core import NEVER, ForeignCore, FrameSplitter
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.codec import (
    HEAD,
    HEAD_SIZE,
    LAST_ID,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    RESPONSE_HEADS,
    HeadReader,
    parse_request,
    serialise_message,
    serialise_request,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import (
    LimitReachedError,
    PayloadTooLargeError,
    RemoteProtocolError,
    violation,
)
from parley._node.protocol.limits import WAITING_PONGS
from parley._node.protocol.memory_budget import REQUEST_WEIGHT, SHARE, MemoryBudget
from parley._node.protocol.reports import PongReceived

# Data of at least this size is queued separately, because joining it with its head would copy it.
COPIED_SIZE: Final = 4_096


class Requester(Protocol):
    """The sender of a request."""

    def responded(self, payload: memoryview) -> None:
        """Process the response.

        Raises:
            RemoteProtocolError: the response is malformed.
        """

    def lost(self, code: int, text: str) -> None:
        """Handle the end of the connection with this close code."""


class RequestReceived(NamedTuple):
    """A request from the other side, which `answer` must answer once.

    `topic` is None if it isn't UTF-8 or is longer than `longest_name`.
    """

    dialog: int
    kind: int
    topic: str | None
    data: bytes


class SimProtoCore(ForeignCore):
    """The dialogs of one connection in both directions.

    Responses go to their `Requester`. The reports are `RequestReceived`, `PongReceived` and
    `ConnectionEnded`. `heard` is the time when data last arrived or reading resumed.
    """

    __slots__ = (
        "_asked",
        "_deaf_until",
        "_owed",
        "_pings",
        "_pong_due",
        "_pongs",
        "_splitter",
        "_taken",
        "heard",
        "limits",
        "next_id",
        "on_free",
    )

    def __init__(
        self, now: float, limits: DialectLimits, total: MemoryBudget | None = None
    ) -> None:
        account = MemoryBudget(limits.client_memory, total, SHARE)
        super().__init__(now, limits.write_buffer, account)
        self.limits = limits
        self.on_free: Callable[[], None] | None = None  # called when a dialog opened here ends
        self._splitter = FrameSplitter(1, HeadReader(limits.longest_frame).measure)
        self.next_id = 1
        self._asked: dict[int, tuple[Requester, float]] = {}  # by dialog id, oldest first
        self._owed: dict[
            int, int
        ] = {}  # unanswered requests of the other side: bytes of memory by dialog id
        self._deaf_until = (
            NEVER  # while too much is unanswered, reading pauses, at most until this time
        )
        self.heard = now
        self._pings: dict[int, float] = {}  # sent Pings: when they were sent
        self._pong_due = NEVER
        self._taken = 0  # number of messages ever removed from the outbox
        self._pongs: deque[int] = (
            deque()
        )  # positions of the queued Pongs among all messages ever queued

    # Outgoing requests.

    @property
    def free_dialogs(self) -> int:
        """How many more requests may wait for responses."""
        return self.limits.requests - len(self._asked)

    def ask(self, kind: int, topic: str, data: bytes, now: float, asker: Requester) -> int:
        """Send a request and return the id of its dialog.

        Raises:
            LimitReachedError: too many requests wait for responses.
            PayloadTooLargeError: the request is longer than `longest_frame`, or the topic than
                `longest_name`.
            ConnectionClosedError: the connection is closed.
            ValueError: the topic cannot be encoded as UTF-8.
        """
        limits = self.limits
        packet = serialise_request(kind, topic, limits.longest_name)
        self._require_open()
        if len(self._asked) >= limits.requests:
            raise LimitReachedError(
                f"cannot send more requests: {limits.requests:,} already wait for responses"
            )
        dialog = self.next_id
        self._send(REQUEST, dialog, packet, data)
        self.next_id = dialog + 1 if dialog < LAST_ID else 1
        self._asked[dialog] = asker, now + limits.answer_timeout
        return dialog

    def ping(self, now: float) -> int:
        """Send a Ping and return the id that its `PongReceived` will have.

        Raises:
            LimitReachedError: 64 Pings already wait for their Pongs.
            ConnectionClosedError: the connection is closed.
        """
        self._require_open()
        if len(self._pings) >= WAITING_PONGS:
            raise LimitReachedError(
                f"cannot send more Pings: {WAITING_PONGS} already wait for their Pongs"
            )
        dialog = self.next_id
        self.next_id = dialog + 1 if dialog < LAST_ID else 1
        self.outbox.put(serialise_message(PING, dialog))
        self._pings[dialog] = now
        if self._pong_due == NEVER:
            self._pong_due = now + self.limits.ping_timeout
        return dialog

    # Incoming requests.

    def answer(self, dialog: int, code: int, data: bytes, now: float) -> None:
        """Send the response of a dialog; `code` is 0..255. Does nothing while the connection is
        closing.

        Raises:
            PayloadTooLargeError: the response is longer than `longest_frame`; the request stays
                unanswered.
        """
        if self.closing or dialog not in self._owed:
            return
        self._send(RESPONSE, dialog, RESPONSE_HEADS[code], data)
        self.account.release(self._owed.pop(dialog))
        if self._deaf_until != NEVER and not self._owes_too_much:
            self._deaf_until = NEVER
            self._listens_again(now)

    def lose_all(self, code: int, text: str) -> None:
        """Notify all requesters that the connection has ended."""
        asked, self._asked = self._asked, {}
        for asker, _ in asked.values():
            asker.lost(code, text)

    @property
    def _owes_too_much(self) -> bool:
        return bool(self._owed) and not self.account.has_room()

    @property
    def owed(self) -> int:
        """Number of unanswered requests of the other side."""
        return len(self._owed)

    # For the driver.

    @property
    def wants_data(self) -> bool:
        """Whether to read: not while too much waits to be written, or too many requests are
        unanswered.
        """
        return (
            self.outbox.size <= self._write_buffer and self._deaf_until == NEVER
        ) or self.closing

    def data_to_send(self, now: float) -> bytes:
        outbox = self.outbox
        count, deaf = outbox.count, outbox.size > self._write_buffer
        data = super().data_to_send(now)
        self._taken += count - outbox.count
        if deaf:
            self._listens_again(now)  # data sent in the meantime wasn't read
        return data

    # Implementation of ForeignCore.

    def _receive(self, data: bytes, now: float) -> None:
        self.heard = now
        asked = self._asked
        for message in self._splitter.feed(data):
            kind, dialog, _ = HEAD.unpack_from(message)
            payload = message[HEAD_SIZE:]
            if kind == RESPONSE:
                waiting = asked.pop(dialog, None)
                if waiting is None:
                    raise violation(f"a response to {dialog}, which is not a pending request")
                try:
                    waiting[0].responded(payload)
                except RemoteProtocolError:
                    asked[dialog] = waiting  # gets the end of the connection like all others
                    raise
                if self.on_free is not None:
                    self.on_free()
            elif kind == REQUEST:
                self._owe(dialog, len(payload), now)
                self._request_received(dialog, payload)
            elif kind == PING:
                self._answer_ping(dialog, bytes(payload))
            else:
                self._take_pong(dialog, now)

    def _end(self, code: int, reason: str, *, remote: bool = True) -> None:
        super()._end(code, reason, remote=remote)
        while self._owed:
            self.account.release(self._owed.popitem()[1])

    def _next_deadline(self) -> float:
        due = next(iter(self._asked.values()))[1] if self._asked else NEVER
        if self._deaf_until != NEVER:
            return min(due, self._deaf_until)
        return min(due, self._pong_due if self._pings else self._ping_at())

    def _handle_deadline(self, now: float) -> None:
        limits = self.limits
        if self._asked and next(iter(self._asked.values()))[1] <= now:
            reason = f"no response within {limits.answer_timeout:g} s (answer_timeout)"
            self.abort(now, CloseCode.TIMEOUT, reason)
        elif self._deaf_until != NEVER:
            # All local requests have been answered or have timed out. Without reading, the node
            # cannot find out whether the other side is still there.
            if self._deaf_until <= now:
                reason = "handlers did not answer in time, and client_memory is exhausted"
                self.abort(now, CloseCode.OVERLOADED, reason)
        elif not self._pings:
            if self._ping_at() <= now:
                self.ping(now)
        elif self._pong_due <= now:
            if self._splitter.pending_bytes and self.heard + limits.ping_timeout > now:
                # A Pong cannot overtake a message that is still arriving.
                self._pong_due = self.heard + limits.ping_timeout
                return
            self.abort(now, CloseCode.TIMEOUT, f"no Pong within {limits.ping_timeout:g} s")

    # Internals.

    def _request_received(self, dialog: int, payload: memoryview) -> None:
        kind, name, data = parse_request(payload)
        topic: str | None = None
        if len(name) <= self.limits.longest_name:
            try:
                topic = str(name, "utf-8")
            except UnicodeDecodeError:
                topic = None  # no topic has a name that isn't UTF-8
        self.happened.append(RequestReceived(dialog, kind, topic, data))

    def _send(self, kind: int, dialog: int, prefix: bytes, data: bytes) -> None:
        size = len(prefix) + len(data)
        if size > self.limits.longest_frame:
            limit = self.limits.longest_frame
            raise PayloadTooLargeError(
                f"cannot send a payload of {size:,} bytes: the limit is {limit:,} (longest_frame)"
            )
        if len(data) < COPIED_SIZE:
            self.outbox.put(HEAD.pack(kind, dialog, size) + prefix + data)
        else:
            self.outbox.put(HEAD.pack(kind, dialog, size) + prefix)
            self.outbox.put(data)

    def _owe(self, dialog: int, size: int, now: float) -> None:
        owed = self._owed
        if dialog in owed:
            raise violation(f"request {dialog} arrived twice")
        if len(owed) >= self.limits.requests:
            raise RemoteProtocolError(
                CloseCode.OVERLOADED, f"more than {self.limits.requests:,} unanswered requests"
            )
        weight = owed[dialog] = size + REQUEST_WEIGHT
        self.account.charge(weight)
        if self._deaf_until == NEVER and self._owes_too_much:
            self._deaf_until = now + self.limits.answer_timeout

    def _answer_ping(self, dialog: int, payload: bytes) -> None:
        outbox, pongs = self.outbox, self._pongs
        while pongs and pongs[0] < self._taken:
            pongs.popleft()
        if len(pongs) >= WAITING_PONGS:
            raise RemoteProtocolError(CloseCode.OVERLOADED, "too many Pongs wait to be read")
        pongs.append(self._taken + outbox.count)
        outbox.put(serialise_message(PONG, dialog, payload))

    def _take_pong(self, dialog: int, now: float) -> None:
        sent = self._pings.pop(dialog, None)
        if sent is None:
            raise violation(f"a Pong to {dialog}, which is not a pending Ping")
        timeout = self.limits.ping_timeout
        self._pong_due = next(iter(self._pings.values())) + timeout if self._pings else NEVER
        self.happened.append(PongReceived(dialog, now - sent))

    def _ping_at(self) -> float:
        return self.heard + self.limits.idle_before_ping

    def _listens_again(self, now: float) -> None:
        """Restart the deadlines of expected messages, because reading resumes."""
        self.heard = now
        if self._pings:
            self._pong_due = max(self._pong_due, now + self.limits.ping_timeout)
