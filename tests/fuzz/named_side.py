"""A small application on a fuzzed core of named events.

It returns each received event once, and each wait for replies ends once; a script controls its
other actions. It doesn't handle encoded events.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import BromineEvent, BromineType
from parley._node.dialects.named.core import NamedCore
from parley._node.dialects.named.replies import NamedReply
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.reports import ConnectionEnded
from tests.fuzz.allowed import ALLOWED
from tests.fuzz.script import Step

NEVER: Final = float("inf")
NAMES: Final = ("ping", "", "error", "long" * 4, "\ud800")


class NamedSide:
    """Handlers that run until a script has them end; `taken` is how many events came."""

    def __init__(
        self,
        core: NamedCore,
        limits: DialectLimits,
        hear: Callable[[bytes], None],
        now: Callable[[], float],
    ) -> None:
        self.core = core
        self.hear = hear
        self.now = now
        self._limits = limits
        self._running: deque[BromineEvent] = deque()
        self._came = 0
        self._asked: list[OutgoingEmit] = []
        self._woken = 0
        self._again = 0  # replies that became events
        self._others_turn = False
        core.take_turns(self._turn)
        self._acts: Final = (
            self._emit,
            self._ask,
            self._reply,
            self._finish,
            self._fail,
            self._release,
            self._give_up,
            self._read,
            self._leave,
        )

    @property
    def taken(self) -> int:
        """Return how many received events were for handlers, replies, and unmatched Ends."""
        late = sum(
            emit.code == ResultCode.DEADLINE_EXCEEDED and emit.data is None
            for emit in self._asked  # an Error has a text
        )
        return self._came - self._again + self._woken - late + self.core.dropped

    # For the line.

    def take(self, report: Any) -> None:
        """Take an event for a handler."""
        assert isinstance(report, BromineEvent)
        assert report.type is not BromineType.END
        assert len(report.name.encode()) <= self._limits.longest_name
        self._running.append(report)
        self._came += 1

    def end(self, ended: ConnectionEnded) -> None:
        """The connection is closed: all waits have ended; handlers continue."""
        assert all(emit.done for emit in self._asked)

    def next_deadline(self) -> float:
        """At once, if the core let others have their turn."""
        return self.now() if self._others_turn else NEVER

    def handle_deadline(self, now: float) -> None:
        """Others had their turn."""
        if self._others_turn:
            self._others_turn = False
            self.core.go_on(now)

    def _turn(self) -> None:
        self._others_turn = True

    def check(self) -> None:
        """Return whether the waiting events are bounded."""
        core, limits = self.core, self._limits
        assert core.running == len(self._running)
        if not self._again:
            assert core.running <= limits.requests
            size = sum(len(event.data) for event in self._running)
            assert size <= limits.client_memory + limits.longest_frame
        assert core.waiting == sum(not emit.done for emit in self._asked) <= limits.requests
        assert all(emit.account.held <= limits.client_memory for emit in self._asked)

    def finish(self) -> bool:
        """Have all handlers end; whether there were any."""
        running, self._running = self._running, deque()
        for event in running:
            self.core.release(event, self.now())
        return bool(running)

    def check_end(self) -> None:
        """Check that no request waits, and that received events can be read or are refused."""
        assert not self.core.waiting
        for emit in self._asked:
            while emit.replies:
                self._look_at(emit.take())
            if emit.data is not None and isinstance(emit.data, NamedReply):
                self._look_at(emit.data)

    def _look_at(self, reply: NamedReply) -> None:
        assert isinstance(reply.raw, bytes)
        for read in (lambda: reply.data, lambda: reply.tandem):
            try:
                read()
            except ALLOWED["formats"]:
                continue

    # What a script makes it do.

    def act(self, step: Step) -> None:
        """Do one thing; LocalError if it may not be done now."""
        self._acts[step.subcategory % len(self._acts)](step)

    def _name(self, step: Step) -> str:
        return NAMES[step.async_id % len(NAMES)]

    def _emit(self, step: Step) -> None:
        self.core.emit(self._name(step), step.payload, "game" if step.stream % 2 else "")

    def _ask(self, step: Step) -> None:
        emit = OutgoingEmit(self._wake)
        timeout = step.stream / 4 if step.stream % 2 else None
        self.core.ask(emit, self._name(step), step.payload, self.now(), timeout)
        self._asked.append(emit)

    def _wake(self) -> None:
        self._woken += 1

    def _reply(self, step: Step) -> None:
        if self._running:
            event = self._running[step.stream % len(self._running)]
            self.core.reply(event, step.payload, self._name(step))

    def _finish(self, step: Step) -> None:
        if self._running:
            event = self._running[0]
            self.core.finish(event, step.payload or None, self.now())
            self._running.popleft()

    def _fail(self, step: Step) -> None:
        if self._running:
            event = self._running[0]
            self.core.fail(event, 500, step.payload.decode(errors="replace"), self.now())
            self._running.popleft()

    def _release(self, step: Step) -> None:
        if self._running:
            self.core.release(self._running.popleft(), self.now())

    def _give_up(self, step: Step) -> None:
        if self._asked:
            self.core.cancel(self._asked[step.stream % len(self._asked)])

    def _read(self, step: Step) -> None:
        if self._asked:
            emit = self._asked[step.stream % len(self._asked)]
            while emit.replies:
                self._look_at(emit.take())

    def _leave(self, step: Step) -> None:
        if self._asked:
            emit = self._asked[step.stream % len(self._asked)]
            if emit.replies:
                if not self.core.closing:
                    self._again += len(emit.replies) - 1
                self.core.stop_waiting(emit)
                emit.drop_replies()
