"""The driver of a connection: it connects a core, a transport, a timer and the layer above."""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.connection import FLUSH_SIZE
from parley._node.protocol.send_queue import Waker
from parley._node.transport.conditions import WriteWaiters
from parley._node.transport.fair_reads import UNLIMITED, ReadBuffer
from parley._node.transport.loop import Loop, TaskStart, Timer
from parley._node.transport.transport import OPEN, Transport, WriteBarrier

logger = logging.getLogger("parley.transport")

NEVER: Final = float("inf")
# Seconds between two calls of `handle_deadline`, so that a deadline that doesn't move can't cause a
# busy loop.
LEAST_PAUSE: Final = 0.001
# Bytes that may wait for one peer before callers wait, and the fraction at which they resume.
HIGH_WATER = 4 * 2**20
LOW_WATER_PART = 4
FEW_EVENTS = 64  # short events that may wait even if the core withholds some
# Events that are written immediately. If they were written only once per turn of the loop, both
# sides would wait for each other.
FLUSH_EVENTS = 16
# The same in a tunnel, where each write makes an event on each of its hops.
TUNNEL_FLUSH_EVENTS = 64
# Seconds after the barrier opened in which received bytes are read before deadlines are checked.
BARRIER_GRACE = 0.1


def _do_nothing() -> None:
    pass


class SendBuffer(Protocol):
    """The events or messages that wait to be written: their `count` and `size` in bytes. `waker` is
    called when there is something to do."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def waker(self) -> Waker: ...


class NextDeadline(Protocol):
    """The deadlines of the layer above, such as `DeadlineQueue`."""

    @property
    def earliest(self) -> float:
        """When one is due, infinity for never."""


class SansIOProtocol(Protocol):
    """The core of one connection, native or of a foreign dialect.

    The driver passes bytes and the time in, and takes bytes and reports out. A core never waits.
    """

    @property
    def happened(self) -> Any:
        """The reports to deliver."""

    @property
    def ended(self) -> bool:
        """Whether the transport can be closed."""

    @property
    def is_suspended(self) -> bool:
        """Whether it continues without its transport and waits for another one."""

    @property
    def holds_back(self) -> bool:
        """Whether it sends less than the transport accepts."""

    @property
    def outbox(self) -> SendBuffer:
        """The data to write."""

    @property
    def wants_data(self) -> bool:
        """Whether to read."""

    @property
    def wants_eof(self) -> bool:
        """Whether to shut down the sending side once everything is written."""

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be written."""

    @property
    def unread(self) -> bool:
        """Whether it has unprocessed bytes that it could process."""

    def receive_some(self, data: bytes, now: float) -> None:
        """Add `data`, which may be empty, and do a small part of the work."""

    def receive_data(self, data: bytes, now: float) -> None:
        """Add `data` and do all of the work."""

    def receive_eof(self, now: float) -> None:
        """The transport ended or broke."""

    def data_to_send(self, now: float) -> bytes:
        """Return about 64 KiB to write, less if that is all."""

    def next_deadline(self) -> float:
        """When to call `handle_deadline`."""

    def handle_deadline(self, now: float) -> None:
        """Run everything that is due."""

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End immediately."""


class LazyTimer:
    """Calls `callback` at the time given to `set`.

    Deadlines move with every event, so the loop's timer is only replaced by an earlier one. If a
    timer fires too early, the deadline is computed again. `time` is when it fires, `earliest` the
    earliest time for which it may be set.
    """

    __slots__ = ("_callback", "_loop", "_timer", "earliest", "time")

    def __init__(self, loop: Loop, callback: Callable[[float], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._timer: Timer | None = None
        self.time = NEVER
        self.earliest = -NEVER

    def set(self, when: float) -> None:
        """Fire at `when`, which is earlier than `time`."""
        self.stop()
        self.time = when
        self._timer = self._loop.call_at(when, self._fire)

    def stop(self) -> None:
        """Don't fire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        # After the process was suspended, read the bytes in its sockets before checking deadlines.
        self._timer = None
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        now = self._loop.now()
        self.time = NEVER
        self.earliest = now + LEAST_PAUSE
        self._callback(now)


class Driver:
    """Drives one core over one transport.

    All entries end in `step`: receive, deliver reports, write, and set the timer. A sender only
    marks the core as having data (`Waker`), which schedules the write. While the `barrier` is
    closed, the core doesn't read or write, and its clock doesn't advance.

    Attributes:
        on_reports: called with the core's reports, in order.
        deadlines, handle_deadline: those of the layer above, which shares the timer.
        on_closed: called when the transport is closed.
        high_water: bytes that may wait to be written before callers wait.
        pending_tasks: handlers to start once all reports are delivered.
        path: the servers of the federation that the transport passes; empty for a direct one.
        blame: called if the transport brings nothing, or nothing from the other side.
    """

    __slots__ = (
        "_closed",
        "_deadlines",
        "_delivering",
        "_eof_received",
        "_eof_written",
        "_flush_due",
        "_flush_events",
        "_grace_until",
        "_handle_deadline",
        "_loop",
        "_on_reports",
        "_paused",
        "_timer",
        "_transport",
        "_waker",
        "barrier",
        "blame",
        "bytes_received",
        "bytes_sent",
        "core",
        "high_water",
        "on_closed",
        "path",
        "pending_tasks",
        "reads",
        "was_connected",
        "writable",
        "write_waiters",
    )

    def __init__(
        self,
        core: SansIOProtocol,
        loop: Loop,
        on_reports: Callable[[list[Any]], None],
        deadlines: NextDeadline,
        handle_deadline: Callable[[float], None],
        on_closed: Callable[[], None] = _do_nothing,
        high_water: int = HIGH_WATER,
        barrier: WriteBarrier = OPEN,
    ) -> None:
        self.core = core
        self._loop = loop
        self._on_reports = on_reports
        self._deadlines = deadlines
        self._handle_deadline = handle_deadline
        self.on_closed = on_closed
        self.high_water = high_water
        self.barrier = barrier
        self.reads = ReadBuffer()
        self.bytes_received = self.bytes_sent = 0
        self.write_waiters = WriteWaiters()
        self.pending_tasks: list[TaskStart] = loop.scheduler.pending_tasks
        self.path: tuple[NodeId, ...] = ()
        self.blame: Callable[[], None] = _do_nothing
        self._transport: Transport | None = None
        self.writable = self.was_connected = self._paused = self._flush_due = False
        self._delivering = False  # reports must be delivered in order
        self._eof_received = self._eof_written = self._closed = False
        self._flush_events = FLUSH_EVENTS
        self._timer = LazyTimer(loop, self._run_deadlines)
        self._grace_until = -NEVER
        self._waker = core.outbox.waker
        self._waker.wake = self._woken

    # Called by the transport.

    def set_route(self, path: tuple[NodeId, ...], blame: Callable[[], None]) -> None:
        """Set the route of the transport: the servers in its `path`, and the function to
        `blame`.
        """
        self.path, self.blame = path, blame
        self._flush_events = TUNNEL_FLUSH_EVENTS

    def connected(self, transport: Transport) -> None:
        """Use `transport`, which is connected."""
        if self._closed:  # the connection was closed during the dial
            transport.close()
            return
        self._transport = self.barrier.guarded(transport, self.resume_writing)
        self.writable = self.was_connected = True
        self._schedule_flush()

    def received(self, data: bytes) -> None:
        """Process bytes, or buffer them until it is this connection's turn."""
        self.bytes_received += len(data)
        if self.reads.queued:
            self.reads.put(data)
        elif not self._loop.scheduler.run(self, data):
            self.reads.put(data)
            self._update_transport()

    def ended(self) -> None:
        """The transport ended: end the connection once all received bytes are processed."""
        self.writable, self._eof_received = False, True
        if not self._has_unread or not self._may_receive:
            self.step()

    def resume_writing(self) -> None:
        """The transport accepts bytes again."""
        self.writable = True
        self._schedule_flush()

    # Called by the scheduler.

    def read(self, data: bytes, now: float, end: float) -> bool:
        """Process `data` and the buffered bytes until `end`, at least one step of the core."""
        core, reads, barrier, clock = self.core, self.reads, self.barrier, self._loop.now
        if data and (reads.waiting or len(data) > reads.size):
            reads.put(data)
            data = b""
        self._waker.count = self._waker.size = UNLIMITED
        more = True
        while more and core.wants_data and barrier.open and not self._closed:
            try:
                core.receive_some(data or reads.take(), now)
            except Exception:
                self._fail("receiving")
            data = b""
            if core.happened:
                self._deliver("handling received data")
                many = core.outbox.count >= self._flush_events
                if many and self.writable and not self._delivering:
                    self._flush(only_write=True)
            more = reads.waiting or core.unread
            if (now := clock()) >= end:
                break
        if data:
            reads.put(data)
        return more

    # Called by the layer above.

    def flush(self) -> None:
        """Write now, also while another driver delivers reports."""
        if self.writable and not self._delivering:
            self._flush()

    @property
    def can_send(self) -> bool:
        """Whether callers may send without waiting.

        A transport that accepts bytes accepts everything that may be sent. Events that lack credit
        don't delay others.
        """
        core, outbox = self.core, self.core.outbox
        few = outbox.count < FEW_EVENTS and outbox.size < self.high_water
        if self.writable and self.barrier.open and (few or not core.holds_back):
            return True
        return self._closed or core.queued_bytes <= self.high_water

    async def wait_writable(self) -> None:
        """Wait until `can_send`."""
        while not self.can_send:
            await self.write_waiters.wait(self._loop.waiter())

    def hand_over(self, to: "Driver", data: bytes) -> None:
        """Give the transport to another driver behind the same barrier, with `data` and the
        unprocessed bytes, and close this driver."""
        self.reads.size = UNLIMITED
        data += self.reads.take()
        transport, self._transport = self._transport, None
        to.detach()
        if transport is None or to._closed:
            self._transport = transport  # closed below
        else:
            transport.serve(to)
            to._transport, to.path, to.blame = transport, self.path, self.blame
            to.writable, to._paused = self.writable, self._paused
            to._eof_received = self._eof_received
            to.reads.put(data)
            to.step()
        self._close()

    def detach(self) -> None:
        """Close the transport and discard its unprocessed bytes; the core continues."""
        transport, self._transport = self._transport, None
        self.writable = self._paused = self._eof_received = self._eof_written = False
        self.reads.clear()
        if transport is not None:
            transport.serve(None)
            transport.close()

    # Internal.

    @property
    def _has_unread(self) -> bool:
        return self.reads.waiting or self.core.unread

    @property
    def _may_receive(self) -> bool:
        return self.core.wants_data and self.barrier.open and not self._closed

    def step(self, more: bool | None = None) -> None:
        """Deliver reports, write, and update the transport and the timer.

        The layer above calls it after each change of the core except for queued events. `more`
        tells whether there are unprocessed bytes; with None, the driver checks.
        """
        core = self.core
        if more is None:
            more = self._has_unread
        if self._eof_received and not self._delivering and not (more and self._may_receive):
            self._receive_eof()
            more = self._has_unread
        if core.is_suspended and self._transport is not None:
            self.detach()
            more = self._has_unread
        if core.happened:
            self._deliver("handling received data")
        if more or core.ended or core.wants_data is self._paused:
            self._update_transport()
        if core.outbox.count and self.writable and not self._delivering:
            self._flush()
        else:
            self._schedule_flush()  # which also sets the timer

    def _receive_eof(self) -> None:
        core, now = self.core, self._loop.now()
        self.reads.size = UNLIMITED
        try:
            if self._has_unread:  # a closed barrier or a full queue is irrelevant now
                core.receive_data(self.reads.take(), now)
            core.receive_eof(now)
        except Exception:
            self._fail("the end of the transport")

    def _deliver(self, doing: str) -> None:
        """Deliver all reports, also those that this causes; then start handlers."""
        outer, self._delivering = self._delivering, True
        core, scheduler = self.core, self._loop.scheduler
        scheduler.delivering += 1
        try:
            while core.happened:
                try:
                    reports = core.happened[:]
                    core.happened.clear()
                    self._on_reports(reports)
                except Exception:
                    self._fail(doing)
        finally:
            scheduler.delivering -= 1
            self._delivering = outer
        if scheduler.pending_tasks and not scheduler.delivering:
            tasks = scheduler.pending_tasks[:]
            scheduler.pending_tasks.clear()
            self._loop.start_tasks(tasks)

    def _woken(self) -> None:
        """React to new data or a report in the core. The sender is in the middle of an operation,
        so only write, and leave the rest to the scheduled flush.
        """
        if not self._flush_due:
            self._schedule_flush()
        elif self.writable and not self._delivering:
            self._flush(only_write=True)
            self._waker.count, self._waker.size = self._flush_events, FLUSH_SIZE
        else:
            self._waker.count = self._waker.size = UNLIMITED

    def _schedule_flush(self) -> None:
        self._waker.count, self._waker.size = self._flush_events, FLUSH_SIZE
        if not self._flush_due and not self._closed:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self, *, only_write: bool = False) -> None:
        """Write what the transport accepts; then wake callers that wait, and update the transport
        and the timer."""
        core, transport, barrier = self.core, self._transport, self.barrier
        self._flush_due = self._flush_due and only_write
        if self._closed or (transport is None and not core.is_suspended):
            return
        self._waker.count = self._waker.size = UNLIMITED
        try:
            while transport is not None and self.writable and barrier.open:
                data = core.data_to_send(self._loop.now())
                if data:
                    self.bytes_sent += len(data)
                    self.writable = transport.write(data)
                if len(data) < FLUSH_SIZE:
                    break
            if transport is not None and core.wants_eof and not self._eof_written:
                self._eof_written = True
                transport.write_eof()
        except Exception:
            self._fail("sending")
        if only_write:
            return
        self._waker.count = self._waker.size = 0
        if self.write_waiters.waiters and (
            (self.writable and barrier.open and not core.holds_back)
            or core.queued_bytes <= self.high_water // LOW_WATER_PART
        ):
            self.write_waiters.wake()
        if core.happened:
            self._deliver("handling sent data")
        if core.ended or core.wants_data is self._paused:
            self._update_transport()
        if not self._closed:
            due, timer = self._deadlines.earliest, self._timer
            if barrier.open:
                due = min(due, max(core.next_deadline(), self._grace_until))
            else:
                barrier.wait(self._barrier_opened)
            due = max(due, timer.earliest)
            if due < timer.time:
                timer.set(due)

    def _update_transport(self) -> None:
        """Close the transport if the core has ended; pause or resume reading."""
        core, transport = self.core, self._transport
        if core.ended or self._closed:
            # After the last report: a nested call leaves this to the outer call.
            if core.happened and not self._delivering:
                self._deliver("handling the end")
            if not self._delivering:
                self._close()
            return
        wants_data, reads = core.wants_data, self.reads
        if self._has_unread:
            if not self.barrier.open:
                self.barrier.wait(self._barrier_opened)
            elif wants_data and not reads.queued:
                self._loop.scheduler.queue(self)
            wants_data = False  # buffered bytes are processed first
        if wants_data is self._paused and transport is not None:
            self._paused = not wants_data
            (transport.resume_reading if wants_data else transport.pause_reading)()

    def _run_deadlines(self, now: float) -> None:
        if self._closed:
            return
        try:
            if self.barrier.open and now >= self._grace_until:
                self.core.handle_deadline(now)
            self._handle_deadline(now)
        except Exception:
            self._fail("a deadline")
        self.step()

    def _barrier_opened(self) -> None:
        # Read first, because bytes of the peer may have arrived while this process was busy.
        self._grace_until = self._loop.now() + BARRIER_GRACE
        self._update_transport()
        self._schedule_flush()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed, self._eof_received = True, False
        self.barrier.leave(self._barrier_opened)
        self.reads.clear()
        self._timer.stop()
        if self._transport is not None:
            self._transport.close()
        self.write_waiters.wake()
        self.on_closed()

    def _fail(self, where: str) -> None:
        """End the connection because of a bug, with a traceback in the log."""
        logger.exception("internal error while %s", where, extra={"event": "connection.bug"})
        try:
            self.core.abort(self._loop.now(), CloseCode.INTERNAL_ERROR, f"a bug in {where}")
        except Exception:
            logger.exception("internal error while aborting", extra={"event": "connection.bug"})
            self._close()
        self._schedule_flush()
