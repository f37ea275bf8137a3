"""What the driver asks of the core that it serves, native or of a foreign dialect.

A core is told bytes and the time, and tells bytes and reports; it never waits.
`node.protocol.connection.Connection` is one, those of `node.dialects` are the others.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.connection import FLUSH_SIZE
from parley._node.protocol.send_queue import Waker
from parley._node.transport.conditions import WriteWaiters
from parley._node.transport.fair_reads import ROUND_TIME, WHOLE, ReadBuffer
from parley._node.transport.loop import Loop, TaskStart, Timer
from parley._node.transport.transport import OPEN, Transport, WriteBarrier


class SendBuffer(Protocol):
    """What waits to be written."""

    @property
    def count(self) -> int:
        """How many events or messages."""

    @property
    def size(self) -> int:
        """Bytes of their payloads."""

    @property
    def waker(self) -> Waker:
        """Told when something is queued, or is otherwise to be done."""


class SansIOProtocol(Protocol):
    """One connection's core. `happened` are the reports that `reports` will return; with
    `ended` the transport is to be closed."""

    @property
    def happened(self) -> Any:
        """Whether anything is to be reported, by its truth."""

    @property
    def ended(self) -> bool:
        """Whether the transport is to be closed."""

    @property
    def is_suspended(self) -> bool:
        """Whether it goes on without its transport, which is to be closed, and waits for
        another."""

    @property
    def holds_back(self) -> bool:
        """Whether it sends less than its transport takes."""

    @property
    def outbox(self) -> SendBuffer:
        """What waits to be written."""

    @property
    def wants_data(self) -> bool:
        """Whether bytes should be read."""

    @property
    def wants_eof(self) -> bool:
        """Whether the sending side is to be shut after what was written."""

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be written."""

    def reports(self) -> list[Any]:
        """What happened since the last call, in order."""

    @property
    def unread(self) -> bool:
        """Whether it has bytes that it was given and has not looked at, though it could."""

    def receive_some(self, data: bytes, now: float) -> None:
        """Bytes came, or none: do a small part of what there is to do with what came."""

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes came: do all of it."""

    def receive_eof(self, now: float) -> None:
        """The transport ended, or broke."""

    def data_to_send(self, now: float) -> bytes:
        """The next bytes for the transport, about 256 KiB; fewer if nothing is left."""

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""

    def handle_deadline(self, now: float) -> None:
        """Do what is due."""

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End at once."""


NEVER: Final = float("inf")
# Seconds between two looks at the deadlines.
LEAST_PAUSE: Final = 0.001


class LazyTimer:
    """Calls `rung` at the time of its `set`. `at` is what it is set to, `earliest` what it may be
    set to: a deadline that stays where it was although it was handled must not spin."""

    __slots__ = ("_loop", "_rung", "_timer", "at", "earliest")

    def __init__(self, loop: Loop, rung: Callable[[float], None]) -> None:
        self._loop = loop
        self._rung = rung
        self._timer: Timer | None = None
        self.at = NEVER
        self.earliest = -NEVER

    def set(self, due: float) -> None:
        """Ring at `due`, which is earlier than `at`."""
        if self._timer is not None:
            self._timer.cancel()
        self.at = due
        self._timer = self._loop.at(due, self._ring)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        # What a stopped process finds in its sockets on waking counts before the time.
        self._timer = None
        self._loop.soon(self._look)

    def _look(self) -> None:
        now = self._loop.now()
        self.at = NEVER
        self.earliest = now + LEAST_PAUSE
        self._rung(now)


logger = logging.getLogger("parley.transport")

# Bytes that may wait for one peer before callers wait, and the part at which they go on.
HIGH_WATER = 4 * 2**20
LOW_WATER_PART = 4
FEW_EVENTS = 64  # which may wait, if they are short, whatever the core holds back
# Events that are written at once: with a whole turn's, both sides would work by turns.
FLUSH_EVENTS = 16
# Seconds after a gate opened in which what has come meanwhile is read before the time counts.
GATE_GRACE = 0.1


class Driver:
    """The shell of one connection.

    `on_reports` is called with what happened, in order; `next_deadline` and `handle_deadline` are
    those of the layer above, which shares the timer. While more than `high_water` bytes wait to be
    written, callers wait in `room`. What came is taken in turns (`fair_reads`): the core
    does some of it, its reports are handed on, and so forth until the time is up. Nothing is read
    while anything waits for that. While `gate`, set before the transport is there, is shut, the
    core gets and gives nothing, and its time stands still. What is put in `to_begin` while
    reports are handed on begins when all of them were. A parted core goes on with the transport of
    another driver (`hand_over`). `path` is its way through a federation; `blame` is to be called if
    nothing, or nothing of the other side, comes by that.
    """

    __slots__ = (
        "_alarm",
        "_busy",
        "_closed",
        "_eof_came",
        "_eof_written",
        "_flush_due",
        "_grace_until",
        "_handle_deadline",
        "_loop",
        "_next_deadline",
        "_on_reports",
        "_outlet",
        "_paused",
        "_waker",
        "blame",
        "core",
        "gate",
        "high_water",
        "on_closed",
        "path",
        "rooms",
        "to_begin",
        "turns",
        "was_connected",
        "writable",
    )

    def __init__(
        self,
        core: SansIOProtocol,
        loop: Loop,
        on_reports: Callable[[list[Any]], None],
        next_deadline: Callable[[], float],
        handle_deadline: Callable[[float], None],
    ) -> None:
        self.core, self._loop = core, loop
        self._on_reports = on_reports
        self._next_deadline, self._handle_deadline = next_deadline, handle_deadline
        self.high_water, self.turns, self.rooms = HIGH_WATER, ReadBuffer(), WriteWaiters()
        self.gate: WriteBarrier = OPEN
        self._outlet: Transport | None = None
        self.writable = self._paused = self._flush_due = False
        self.to_begin: list[TaskStart] = loop.line.to_begin
        self._busy = False  # reports are being handed on, and none may overtake another
        self._eof_came = self._eof_written = self._closed = self.was_connected = False
        self._alarm, self._grace_until = LazyTimer(loop, self._rung), -NEVER
        self.path: tuple[NodeId, ...] = ()
        self.blame: Callable[[], None] = lambda: None
        self.on_closed: Callable[[], None] | None = None  # the transport is closed
        self._waker = core.outbox.waker
        self._waker.wake = self._woken

    # From the outlet.

    def connected(self, outlet: Transport) -> None:
        """The transport is there."""
        if self._closed:  # given up while it was being dialled
            outlet.close()
            return
        self._outlet = self.gate.guarded(outlet, self.may_write)
        self.writable = self.was_connected = True
        self._flush_soon()

    def received(self, data: bytes) -> None:
        """The transport brought bytes."""
        core, turns, line = self.core, self.turns, self._loop.line
        turns.came += len(data)
        if turns.due:
            turns.put(data)
            return
        seconds = line.lets_pass(turns) if line.crowded else ROUND_TIME
        at_once = seconds and not turns.waiting and len(data) <= turns.size
        if at_once and core.wants_data and self.gate.open and not self._closed:
            self.take_turn(self._loop.now() + seconds, data)
            return
        turns.put(data)
        if seconds:
            self.take_turn(self._loop.now() + seconds)
        else:
            self._follow()

    def ended(self) -> None:
        """The transport ended, or broke: so does the connection, when all that came before
        that had its turn."""
        self.writable, self._eof_came = False, True
        if not self._has_more or not self._may_go_on:
            self._end()

    def may_write(self) -> None:
        """The transport takes bytes again."""
        self.writable = True
        self._flush_soon()

    # From the layer above.

    def flush(self) -> None:
        """Write now what the transport takes, also in the middle of another driver's work."""
        if self.writable and not self._busy:
            self._flush()

    @property
    def has_room(self) -> bool:
        """Whether callers need not wait: a transport that takes bytes takes all that may
        be sent, and what lacks credit does not hold up others."""
        core, outbox = self.core, self.core.outbox
        few = outbox.count < FEW_EVENTS and outbox.size < self.high_water
        if self.writable and self.gate.open and (few or not core.holds_back):
            return True
        return self._closed or core.queued_bytes <= self.high_water

    @property
    def is_full(self) -> bool:
        """Whether more than `high_water` bytes wait to be written, for whatever reason."""
        return self.core.queued_bytes > self.high_water

    async def room(self) -> None:
        """Wait until `has_room`; `rooms` has those who do."""
        while not self.has_room:
            await self.rooms.wait(self._loop.waiter())

    def settle(self) -> None:
        """The core changed outside of a receive: hand on its reports, then flush."""
        self._after(self._has_more)

    def hand_over(self, to: "Driver", data: bytes) -> None:
        """Give the transport to another driver behind the same gate, with `data` and what this
        one has kept. This one is over, without a word."""
        self.turns.size = WHOLE
        data += self.turns.take()
        outlet, self._outlet = self._outlet, None
        to.let_go()
        if outlet is None or to._closed:
            self._outlet = outlet  # nobody's any more: closed below
        else:
            outlet.serve(to)
            to._outlet, to.path, to.blame = outlet, self.path, self.blame
            to.writable, to._paused, to._eof_came = self.writable, self._paused, self._eof_came
            to.turns.put(data)
            to.settle()
            if to._eof_came and not data:
                to.ended()
        self._close()

    def let_go(self) -> None:
        """Close the transport and forget what it brought; the core goes on."""
        outlet, self._outlet = self._outlet, None
        self.writable = self._paused = self._eof_came = self._eof_written = False
        self.turns.clear()
        if outlet is not None:
            outlet.serve(None)
            outlet.close()

    # Inside.

    @property
    def _has_more(self) -> bool:
        """Whether something came that the core has not looked at."""
        return self.turns.waiting or self.core.unread

    @property
    def _may_go_on(self) -> bool:
        """Whether the core may look at it."""
        return self.core.wants_data and self.gate.open and not self._closed

    def take_turn(self, end: float, data: bytes = b"") -> None:
        """Have the core take `data`, or what was kept, step by step until `end`, one step at
        least: it is this connection's turn in the line."""
        core, turns, now, gate = self.core, self.turns, self._loop.now, self.gate
        self._waker.count = self._waker.size = NEVER
        more, start = True, (time := now())
        while more and core.wants_data and gate.open and not self._closed:
            try:
                core.receive_some(data or turns.take(), time)
            except Exception:
                self._bug("receiving")
            data = b""
            if core.happened:
                self._hand_on("handling what came")
                if core.outbox.count >= FLUSH_EVENTS and self.writable and not self._busy:
                    self._flush(midway=True)
            more = turns.waiting or core.unread
            if (time := now()) >= end:
                break
        self._loop.line.charge(turns, time - start)
        if self._eof_came and not (more and self._may_go_on):
            self._end()
        else:
            self._after(more)

    def _end(self) -> None:
        """Nothing comes any more, and what the core could take it has taken."""
        turns, core, now = self.turns, self.core, self._loop.now()
        turns.size = WHOLE
        try:
            if self._has_more:  # it cannot wait for a gate, or for room to answer
                core.receive_data(turns.take(), now)
            core.receive_eof(now)
        except Exception:
            self._bug("the end of the transport")
        self._after(self._has_more)

    def _after(self, more: bool) -> None:
        core = self.core
        if core.is_suspended and self._outlet is not None:
            self.let_go()
            more = self._has_more
        if core.happened:
            self._hand_on("handling what came")
        if more or core.ended or core.wants_data is self._paused:
            self._follow()  # at once: what comes before the next turn would have to be held
        if core.outbox.count and self.writable and not self._busy:
            self._flush()
        else:
            self._flush_soon()  # and have the timer set

    def _hand_on(self, doing: str) -> None:
        """Hand on the core's reports in their order, also those that doing so makes; then begin."""
        busy, self._busy, core, line = self._busy, True, self.core, self._loop.line
        line.handing_on += 1
        try:
            while core.happened:
                try:
                    reports = core.happened[:]
                    core.happened.clear()
                    self._on_reports(reports)
                except Exception:
                    self._bug(doing)
        finally:
            line.handing_on -= 1
            self._busy = busy
        if line.to_begin and not line.handing_on:
            self._loop.begin(line.take())

    def _woken(self) -> None:
        """The core has something to write, to report, or to read on for. Senders are in the
        middle of something: what else follows from writing waits for the flush."""
        if not self._flush_due:
            self._flush_soon()
        elif self.writable and not self._busy:
            self._flush(midway=True)
            self._waker.count, self._waker.size = FLUSH_EVENTS, FLUSH_SIZE
        else:
            self._waker.count = self._waker.size = NEVER

    def _flush_soon(self) -> None:
        self._waker.count, self._waker.size = FLUSH_EVENTS, FLUSH_SIZE
        if not self._flush_due and not self._closed:
            self._flush_due = True
            self._loop.soon(self._flush)

    def _flush(self, *, midway: bool = False) -> None:
        """Write what the transport takes; and see to what follows, unless a sender is `midway`."""
        core, outlet, gate = self.core, self._outlet, self.gate
        self._flush_due = self._flush_due and midway
        if self._closed or (outlet is None and not core.is_suspended):
            return
        self._waker.count = self._waker.size = NEVER
        try:
            while outlet is not None and self.writable and gate.open:
                data = core.data_to_send(self._loop.now())
                if data:
                    self.turns.went += len(data)
                    self.writable = outlet.write(data)
                if len(data) < FLUSH_SIZE:
                    break
            if outlet is not None and core.wants_eof and not self._eof_written:
                self._eof_written = True
                outlet.write_eof()
        except Exception:
            self._bug("sending")
        if midway:
            return
        self._waker.count = self._waker.size = 0
        if self.rooms.waiters and (
            (self.writable and gate.open and not core.holds_back)
            or core.queued_bytes <= self.high_water // LOW_WATER_PART
        ):
            self.rooms.wake()
        if core.happened:
            self._hand_on("handling what was sent")
        if core.ended or core.wants_data is self._paused:
            self._follow()
        self._set_timer()
        if not gate.open and not self._closed:
            gate.wait(self._gate_opened)

    def _follow(self) -> None:
        """Close the transport if the core has ended, or pause and resume reading as it needs."""
        core, outlet = self.core, self._outlet
        if core.ended or self._closed:
            # The transport is closed after the last report. A caller that is handing on reports
            # returns here after them.
            if core.happened and not self._busy:
                self._hand_on("handling the end")
            if not self._busy:
                self._close()
            return
        wants_data, turns = core.wants_data, self.turns
        if self._has_more:
            if not self.gate.open:
                self.gate.wait(self._gate_opened)
            elif wants_data and not turns.due:
                self._loop.line.join(self)
            wants_data = False  # what is kept comes first
        if wants_data is self._paused and outlet is not None:
            self._paused = not wants_data
            (outlet.resume_reading if wants_data else outlet.pause_reading)()

    def _set_timer(self) -> None:
        """Have the next deadline looked at when it is due."""
        if self._closed:
            return
        due = self._next_deadline()
        if self.gate.open:
            due = min(due, max(self.core.next_deadline(), self._grace_until))
        due = max(due, self._alarm.earliest)
        if due < self._alarm.at:
            self._alarm.set(due)

    def _rung(self, now: float) -> None:
        if self._closed:
            return
        try:
            if self.gate.open and now >= self._grace_until:
                self.core.handle_deadline(now)
            self._handle_deadline(now)
        except Exception:
            self._bug("a deadline")
        self._after(self._has_more)

    def _gate_opened(self) -> None:
        """Read first what came meanwhile: the other side is not to blame for the silence."""
        self._grace_until = self._loop.now() + GATE_GRACE
        self._follow()
        self._flush_soon()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed, self._eof_came = True, False
        self.gate.leave(self._gate_opened)
        self.turns.clear()
        self._alarm.stop()
        if self._outlet is not None:
            self._outlet.close()
        self.rooms.wake()
        if self.on_closed is not None:
            self.on_closed()

    def _bug(self, where: str) -> None:
        """A mistake of ours: it ends this connection, with a traceback in the log."""
        logger.exception("internal error while %s", where, extra={"event": "connection.bug"})
        try:
            self.core.abort(self._loop.now(), CloseCode.INTERNAL_ERROR, f"a bug in {where}")
        except Exception:
            logger.exception("internal error while saying so", extra={"event": "connection.bug"})
            self._close()
        self._flush_soon()
