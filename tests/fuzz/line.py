"""One core of a dialect on a fuzzed transport, with a clock that a script moves.

It acts as a driver and checks after each step the guarantees of every core: no exception, the end
is reported once and last, no deadline remains due. It is independent of the dialects.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol

from parley._node.dialects.core import ForeignCore
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded
from tests.fuzz.script import Step

START: Final = 100.0
# More turns than this for one step are a loop.
MOST_TURNS: Final = 500
NEVER: Final = float("inf")
# Why we end a connection of ourselves.
OURS: Final = (CloseCode.GOING_AWAY, CloseCode.INTERNAL_ERROR)
# How many bytes a transport delivers at a time: a byte of the input selects it; 0: all.
PIECES: Final = (0, 1, 7, 100)


class Event(IntEnum):
    """Further events, besides messages of either side: an ACTION's category, modulo their
    number.
    """

    ACT = 0  # The application acts; the subcategory selects the action.
    WAIT = 1  # a quarter of a second for each of the subcategory
    BLOCK = 2  # The transport stops or resumes accepting data.
    END = 3  # the transport ends
    CLOSE = 4
    ABORT = 5


class Application(Protocol):
    """The user of a core."""

    def take(self, report: Any) -> None:
        """Take a report that is not the end."""

    def end(self, ended: ConnectionEnded) -> None:
        """Take the end."""

    def hear(self, data: bytes) -> None:
        """What the other side reads of us."""

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""

    def handle_deadline(self, now: float) -> None:
        """Run everything that is due."""

    def check(self) -> None:
        """Whether its own promises hold."""


class Line:
    """A core, its application and the transport. `piece` is how many bytes the transport
    brings at once, 0 for all that there are; what a core does not want waits there."""

    def __init__(self, core: ForeignCore, application: Application, piece: int = 0) -> None:
        self.core = core
        self.now = START
        self.ended: ConnectionEnded | None = None
        self.blocked = False
        self.read = 0  # bytes that the core was given
        self._application = application
        self._piece = piece
        self._coming = b""

    # Incoming data.

    def receive(self, data: bytes) -> None:
        """The other side sent bytes."""
        self._coming += data
        self.settle()

    def eof(self) -> None:
        """The transport ends, with whatever had not been read."""
        self._coming = b""
        if not self.core.ended:
            self.core.receive_eof(self.now)
            assert not self.core.queued_bytes
        self.settle()
        assert self.core.ended

    def happen(self, event: Event, step: Step) -> None:
        """Let something happen that is no act of the application."""
        match event:
            case Event.WAIT:
                self.wait(step.subcategory / 4)
            case Event.BLOCK:
                self.blocked = not self.blocked
            case Event.END:
                self.eof()
            case Event.CLOSE:
                self.core.close(self.now, OURS[step.subcategory % 2])
            case _:
                self.core.abort(self.now, OURS[step.subcategory % 2], "a script said so")
        self.settle()

    def settle(self) -> None:
        """Run until there are no reports, no data to send, and no available input."""
        for _ in range(MOST_TURNS + len(self._coming)):
            busy = self.hand_on()
            busy = self.flush() or busy
            busy = self._bring() or busy
            if not busy and self.next_deadline() > self.now:
                break
            if not busy:
                self._handle_deadlines()
        else:
            raise AssertionError("it never falls quiet")
        self._check()

    @property
    def is_quiet(self) -> bool:
        """Return whether no data can move in either direction, and no deadline is due."""
        core = self.core
        goes = core.outbox.count and not self.blocked
        comes = self._coming and core.wants_data
        return core.ended or not (goes or comes or self.next_deadline() <= self.now)

    def hand_on(self) -> bool:
        """Hand on the reports; whether there were any."""
        reports = self.core.reports()
        for report in reports:
            assert self.ended is None, "a report after the last"
            if isinstance(report, ConnectionEnded):
                self.ended = report
                self._application.end(report)
            else:
                self._application.take(report)
        return bool(reports)

    def flush(self) -> bool:
        """Write what there is, if the transport takes it; whether there was any."""
        if self.blocked or self.core.ended:
            return False
        data = self.core.data_to_send(self.now)
        self._application.hear(data)
        return bool(data)

    def _bring(self) -> bool:
        if not self._coming or self.core.ended or not self.core.wants_data:
            return False
        size = self._piece or len(self._coming)
        data, self._coming = self._coming[:size], self._coming[size:]
        self.read += len(data)
        self.core.receive_data(data, self.now)
        return True

    def _check(self) -> None:
        core = self.core
        assert core.closing == (self.ended is not None)
        assert core.closing or not core.ended
        assert not core.wants_eof or (core.closing and not core.queued_bytes)
        assert not core.ended or core.next_deadline() == NEVER
        assert core.ended or core.wants_data or not core.closing
        assert core.outbox.count or not core.queued_bytes
        self._application.check()

    # Time.

    def wait(self, seconds: float) -> None:
        """Let time pass; each deadline is handled when it is due."""
        end = self.now + seconds
        for _ in range(MOST_TURNS):
            due = self.next_deadline()
            if due > end:
                break
            self.now = max(self.now, due)
            self._handle_deadlines()
            self.settle()
        else:
            raise AssertionError("a deadline that is handled stays due")
        self.now = end

    def next_deadline(self) -> float:
        """When something is due, here or above; never once it is over."""
        if self.core.ended:
            return NEVER
        return min(self.core.next_deadline(), self._application.next_deadline())

    def _handle_deadlines(self) -> None:
        self.core.handle_deadline(self.now)
        self._application.handle_deadline(self.now)

    # The end.

    def finish(self, finish: Callable[[], bool]) -> None:
        """Exchange all data while `finish` makes the application complete its work, until it
        returns False; then end.
        """
        self.blocked = False
        self.settle()
        while finish():
            self.settle()
        assert self.core.ended or not self._coming, "it does not read on"
        assert self.core.closing or self.core.wants_data
        self.eof()
        assert self.ended is not None, "an end without a report"
        self.core.receive_data(b"\0" * 40, self.now)
        self.core.handle_deadline(self.now + 1e6)
        self.core.receive_eof(self.now)
        self.settle()
