"""One connection with byte-exact named events, on either side.

A reply goes to the event that waits for it. Every other event goes to a handler. The dialect has no
message that opens or closes a connection.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from parley._node.dialects.core import ForeignCore, FrameSplitter
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import (
    END_NAME,
    ERROR_NAME,
    LARGEST_CODE,
    REPLY_NAME,
    TOTAL_SIZE,
    BromineEvent,
    BromineType,
    Flavour,
    decode_error,
    encode_error,
    measure_of,
    parse_event,
    serialise_head,
)
from parley._node.dialects.named.replies import NamedReply
from parley._node.messaging.deadline_queue import DeadlineQueue, clamp_timeout
from parley._node.messaging.named_events import UNREAD, OutgoingEmit
from parley._node.protocol.codes import EVENT_FAILED, LOST, CloseCode, ResultCode
from parley._node.protocol.errors import LimitReachedError, RemoteProtocolError
from parley._node.protocol.memory_budget import REQUEST_WEIGHT, SHARE, MemoryBudget

# Ids only need to be unique among the local events that wait for replies. But the crate (0.22)
# removes an event that waits when it receives an event with the same id. The crate's own ids never
# have this bit.
FIRST_ID: Final = 1 << 47
_INITIATOR, _RESPONSE, _END, _ERROR = BromineType  # looking up members is slow
# Data of at least this size is queued separately, because joining it with its head would copy it.
COPIED_SIZE: Final = 4_096


# Events to process before other connections get a turn: thousands of the shortest ones can arrive
# together, and each may start a handler.
TURN_EVENTS: Final = 64


class EventParser:
    """Parses received events, passes them to `take`, and pauses while too many handlers run.

    Events with `running` handlers are charged to `account`. After many events in a row, the parser
    pauses and calls `on_turn`; `go_on` resumes it once other connections have run. Without
    `on_turn` it doesn't pause for other connections.
    """

    __slots__ = (
        "_account",
        "_flavour",
        "_frames",
        "_held",
        "_limits",
        "_splitter",
        "_take",
        "_turn_left",
        "on_turn",
        "running",
    )

    def __init__(
        self,
        flavour: Flavour,
        limits: DialectLimits,
        take: Callable[[BromineEvent], None],
        account: MemoryBudget,
    ) -> None:
        self._account = account
        self.running = 0
        self.on_turn: Callable[[], None] | None = None
        self._flavour = flavour
        self._limits = limits
        self._take = take
        self._splitter = FrameSplitter(TOTAL_SIZE, measure_of(flavour, limits.longest_frame))
        # While paused: the remaining frames of a chunk, and further chunks.
        self._frames: Iterator[memoryview] | None = None
        self._held: deque[bytes] = deque()
        self._turn_left = TURN_EVENTS

    @property
    def holds_back(self) -> bool:
        return self._frames is not None

    def feed(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            RemoteProtocolError: an event is malformed.
        """
        if self._frames is not None:
            self._held.append(data)  # only a little, because the transport pauses reading
            return
        self._frames = self._splitter.feed(data)
        self._turn_left = TURN_EVENTS
        self._take_frames()

    def started(self, event: BromineEvent) -> None:
        self.running += 1
        self._account.charge(len(event.data) + REQUEST_WEIGHT)

    def done(self, event: BromineEvent) -> None:
        """Record that the handler of an event has ended, and resume; raises like `feed`."""
        self.running -= 1
        self._account.release(len(event.data) + REQUEST_WEIGHT)
        self._resume()

    def go_on(self) -> None:
        """Resume after `on_turn`; raises like `feed`."""
        self._turn_left = TURN_EVENTS
        self._resume()

    def clear(self) -> None:
        self._frames = None
        self._held.clear()

    def _resume(self) -> None:
        if self._frames is not None and self._turn_left and self._has_room:
            self._take_frames()

    @property
    def _has_room(self) -> bool:
        if not self.running:
            return True  # otherwise the parser would never resume
        return self.running < self._limits.requests and self._account.has_room()

    def _take_frames(self) -> None:
        flavour, longest_name = self._flavour, self._limits.longest_name
        frames, take, on_turn = self._frames, self._take, self.on_turn
        while frames is not None:
            for frame in frames:
                take(parse_event(frame, flavour, longest_name))
                if self._frames is None:
                    return  # the event ended the connection
                if on_turn is not None:
                    self._turn_left -= 1
                    if not self._turn_left:
                        on_turn()
                        return
                if not self._has_room:
                    return
            frames = self._splitter.feed(self._held.popleft()) if self._held else None
            self._frames = frames


class NamedCore(ForeignCore):
    """One connection; its reports are `BromineEvent`s for handlers.

    Pass each reported event to `finish`, `fail` or `release` exactly once. `dropped` counts Ends
    for events whose replies are no longer awaited.
    """

    __slots__ = (
        "_deadlines",
        "_intake",
        "_limits",
        "_next_id",
        "_waiting",
        "dropped",
        "flavour",
    )

    def __init__(
        self,
        now: float,
        limits: DialectLimits,
        flavour: Flavour = Flavour.PLAIN,
        total: MemoryBudget | None = None,
    ) -> None:
        super().__init__(now, limits.write_buffer, MemoryBudget(limits.client_memory, total, SHARE))
        self.flavour = flavour
        self.dropped = 0
        self._limits = limits
        self._next_id = FIRST_ID
        self._waiting: dict[int, OutgoingEmit] = {}
        self._deadlines: DeadlineQueue[OutgoingEmit] = DeadlineQueue()
        self._intake = EventParser(flavour, limits, self._take, self.account)

    # For the driver.

    @property
    def wants_data(self) -> bool:
        """Whether to read: not while too many handlers run, or too much data waits to be
        written.
        """
        to_be_read = not self._intake.holds_back and self.outbox.size <= self._write_buffer
        return to_be_read or self.closing

    # Sending.

    def emit(self, name: str, data: bytes, namespace: str = "") -> None:
        """Send an event without waiting for replies.

        Raises:
            ConnectionClosedError: the connection is closed.
            PayloadTooLargeError: the event is longer than `longest_frame`.
            LocalProtocolError: a name is too long.
        """
        self._send(_INITIATOR, name, data, namespace, None)

    def reply(self, event: BromineEvent, data: bytes, name: str = "", namespace: str = "") -> None:
        """Send a reply that isn't the last one, by default with the name `reply`; raises like
        `emit`.
        """
        self._send(_RESPONSE, name or REPLY_NAME, data, namespace, event)

    def ask(
        self,
        emit: OutgoingEmit,
        name: str,
        data: bytes,
        now: float,
        timeout: float | None = None,
        namespace: str = "",
    ) -> None:
        """Send an event, and pass its replies to `emit` as `NamedReply` for `timeout` seconds from
        `now`.

        `client_memory` limits the unread replies. Otherwise raises like `emit`.

        Raises:
            LimitReachedError: too many events wait for replies.
        """
        if len(self._waiting) >= self._limits.requests:
            raise LimitReachedError(
                f"cannot wait for more replies: {self._limits.requests:,} events already wait"
            )
        emit.account = MemoryBudget(self._limits.client_memory, self.account)
        emit.async_id = self._send(_INITIATOR, name, data, namespace, None)
        self._waiting[emit.async_id] = emit
        timeout = clamp_timeout(timeout)
        if timeout is not None:
            emit.slot = self._deadlines.add(emit, now + timeout)

    def cancel(self, emit: OutgoingEmit) -> None:
        """Stop waiting; further replies are handled as ordinary events."""
        if not emit.done:
            emit.done = True
            self._forget(emit)

    def stop_waiting(self, emit: OutgoingEmit) -> None:
        """Stop waiting; all replies except the first are handled as ordinary events."""
        self.cancel(emit)
        if not self.closing:
            for reply, _ in list(emit.replies)[1:]:
                self._take_ordinary(reply.event)

    def finish(self, event: BromineEvent, data: bytes | None, now: float) -> None:
        """Send the `data` that a handler returned, if any, as one more reply.

        The typed flavour always sends it, as an event named `end`. Raises like `emit`; the event
        then still has to be finished.
        """
        if self.flavour is Flavour.TYPED:
            self._send(_END, END_NAME, data or b"", "", event)
        elif data is not None:
            self._send(_RESPONSE, REPLY_NAME, data, "", event)
        self.release(event, now)

    def fail(self, event: BromineEvent, code: int, text: str, now: float) -> None:
        """Send an event named `error`, unless the event itself was an error, to avoid a loop.

        A code that doesn't fit is sent as 500. Raises like `finish`.
        """
        code = code if code <= LARGEST_CODE else EVENT_FAILED
        if not self._is_error(event):
            self._send(_ERROR, ERROR_NAME, encode_error(code, text), "", event)
        self.release(event, now)

    def release(self, event: BromineEvent, now: float) -> None:
        """Record that the handler has ended, or that there was none."""
        try:
            self._intake.done(event)
        except RemoteProtocolError as error:
            self._fail(CloseCode(error.code), error.reason, now)

    def go_on(self, now: float) -> None:
        try:
            self._intake.go_on()
        except RemoteProtocolError as error:
            self._fail(CloseCode(error.code), error.reason, now)

    # Receiving.

    @property
    def running(self) -> int:
        return self._intake.running

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take_turns(self, on_turn: Callable[[], None]) -> None:
        """Call `on_turn` after many events in a row; the caller must call `go_on` once other
        connections have run.
        """
        self._intake.on_turn = on_turn

    def _receive(self, data: bytes, now: float) -> None:
        self._intake.feed(data)

    def _take(self, event: BromineEvent) -> None:
        ref_id = event.ref_id
        if ref_id is not None:
            emit = self._waiting.get(ref_id)
            if emit is not None:
                self._take_reply(emit, event)
                return
        if event.type is _END:
            self.dropped += 1
        else:
            self._take_ordinary(event)

    def _take_ordinary(self, event: BromineEvent) -> None:
        self._intake.started(event)
        self.happened.append(event)

    def _take_reply(self, emit: OutgoingEmit, event: BromineEvent) -> None:
        if self._is_error(event):
            self._forget(emit)
            code, text = decode_error(event.data) or (ResultCode.MALFORMED, "")
            emit.finish(code or ResultCode.HANDLER_FAILED, text)
        elif event.type is _END:
            self._forget(emit)
            emit.finish(ResultCode.ACCEPTED, NamedReply(event) if event.data else None)
        elif not emit.put(NamedReply(event), cost_of(event)):
            self._forget(emit)
            emit.finish(UNREAD, None)

    def _is_error(self, event: BromineEvent) -> bool:
        if self.flavour is Flavour.TYPED:
            return event.type is _ERROR
        # The plain flavour has no types; the crate recognises an error by its name.
        return event.name == ERROR_NAME and event.ref_id is not None

    def _forget(self, emit: OutgoingEmit) -> None:
        self._waiting.pop(emit.async_id, None)
        emit.slot.discard(emit)

    def _send(
        self, kind: BromineType, name: str, data: bytes, namespace: str, to: BromineEvent | None
    ) -> int:
        self._require_open()
        event_id = self._next_id
        ref_id = None if to is None else to.event_id
        head = serialise_head(
            self.flavour, event_id, kind, ref_id, namespace, name, len(data), self._limits
        )
        self._next_id += 1
        if len(data) <= COPIED_SIZE:
            self.outbox.put(head + data)
        else:
            self.outbox.put(head)
            self.outbox.put(data)
        return event_id

    # Deadlines and the end.

    def _next_deadline(self) -> float:
        return min(self._deadlines.earliest, self._idle_at)

    def _handle_deadline(self, now: float) -> None:
        for emit in self._deadlines.pop_due(now):
            if not emit.done:
                self._waiting.pop(emit.async_id, None)
                emit.finish(ResultCode.DEADLINE_EXCEEDED, None)
        if now >= self._idle_at:
            self._fail(CloseCode.TIMEOUT, "no traffic within idle_timeout", now)

    @property
    def _idle_at(self) -> float:
        return self._last_byte + self._limits.idle_timeout

    def _end(self, code: int, reason: str, *, remote: bool = True) -> None:
        if self.closing:
            return
        super()._end(code, reason, remote=remote)
        self._intake.clear()
        waiting, self._waiting = self._waiting, {}
        for emit in waiting.values():
            emit.close_code = code
            emit.close_text = reason
            emit.finish(LOST, None)


def cost_of(event: BromineEvent) -> int:
    """Return the memory that an unread event uses, in bytes."""
    return len(event.data) + len(event.name) + len(event.namespace)
