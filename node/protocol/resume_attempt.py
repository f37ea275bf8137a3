"""One attempt of an initiator to resume its session over a new transport.

It sends Resume and receives Resumed or Reject. A Reject isn't authenticated, so it only ends the
attempt (docs/protocol.md section 17). `Connection.start_attempt` creates attempts; a driver runs
them like connections.
"""

from collections.abc import Callable
from typing import Final

from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import REJECT, RESUMED, CloseCode
from parley._node.protocol.errors import RemoteProtocolError, violation
from parley._node.protocol.frames import FrameReader
from parley._node.protocol.handshake import raw_handshake_event
from parley._node.protocol.handshake_messages import decode_handshake, parse_code_and_text
from parley._node.protocol.limits import HANDSHAKE_EVENT_SIZE, RESUME_TIMEOUT
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import AttemptEnded
from parley._node.protocol.resumption import read_resumed
from parley._node.protocol.send_queue import SendQueue

NEVER: Final = float("inf")
# Called with number, position and MAC of a Resumed, and the time. Returns whether the session
# resumes.
Accept = Callable[[int, int, bytes, float], bool]


class ResumeAttempt:
    """The protocol core of one attempt, which takes at most 5 s.

    `outcome` is None while the attempt runs. Then it is "resumed" (the session takes over the
    transport and the `unread_bytes` after Resumed), "rejected" with the peer's `code`, or "failed".
    It is reported before the transport of an attempt that has `ended` is closed.
    """

    def __init__(self, resume: bytes, accept: Accept, now: float) -> None:
        self._resume = resume
        self.accept: Accept | None = accept
        self._frames = FrameReader(HANDSHAKE_EVENT_SIZE)
        self._deadline = now + RESUME_TIMEOUT
        self.outbox = SendQueue(MemoryBudget(0))
        self.happened: list[AttemptEnded] = []
        self.wants_data = True
        self.ended = self.unread = self.wants_eof = False
        self.is_suspended = self.holds_back = False
        self.outcome: str | None = None
        self.code: int | None = None
        self.unread_bytes = b""

    @property
    def queued_bytes(self) -> int:
        return len(self._resume)

    def reports(self) -> list[AttemptEnded]:
        reports = self.happened[:]
        self.happened.clear()
        return reports

    def receive_some(self, data: bytes, now: float) -> None:
        if self.outcome is not None or self.accept is None:
            return
        try:
            self._frames.feed(data)
            event = self._frames.take()
            if event is not None:
                self._answered(bytes(event), now)
        except (RemoteProtocolError, LbmDecodeError):
            self._end("failed")

    def receive_data(self, data: bytes, now: float) -> None:
        self.receive_some(data, now)

    def receive_eof(self, now: float) -> None:
        self._end("failed")

    def data_to_send(self, now: float) -> bytes:
        resume, self._resume = self._resume, b""
        return resume

    def next_deadline(self) -> float:
        return NEVER if self.outcome else self._deadline

    def handle_deadline(self, now: float) -> None:
        if now >= self._deadline:
            self._end("failed")

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        self._end("failed")

    def cancel(self) -> None:
        """Cancel the attempt, because the session has ended or starts another attempt."""
        self._end("failed")

    def _answered(self, data: bytes, now: float) -> None:
        event = raw_handshake_event(data)
        if event.subcategory == REJECT:
            self.code, _ = parse_code_and_text(decode_handshake(event.payload))
            self._end("rejected")
        elif event.subcategory != RESUMED or self.accept is None:
            raise violation(f"event 1/{event.subcategory} instead of Resumed or Reject")
        else:
            self.unread_bytes = self._frames.unread_bytes()
            accepted = self.accept(*read_resumed(event.payload), now)
            self._end("resumed" if accepted else "failed")

    def _end(self, outcome: str) -> None:
        if self.outcome is not None:
            return
        self.outcome = outcome
        self.accept = None
        self._frames.clear()
        self._resume = b""
        self.wants_data = False
        self.ended = True
        self.happened.append(AttemptEnded(outcome, self.code))
        self.outbox.waker.changed()
