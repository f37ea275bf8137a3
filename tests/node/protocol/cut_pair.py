"""Two cores whose transport can be cut at any byte, and resumption over a new one.

A `Link` is one transport; it can deliver only a part of what a side writes. The initiator dials
with `attempt`, and the responder's listener finds the session by its tag.
"""

from typing import Any

from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.observer import Observer
from parley._node.protocol.reports import Resumed, ResumeRequested, Suspended
from parley._node.protocol.resume_attempt import ResumeAttempt
from parley._node.protocol.resumption import ClosedSession, spend_mac
from tests.node.protocol.pair import ALICE, BOB, Pair, Side, make_config

M = 30.0


def resuming(**settings: Any) -> dict[str, Any]:
    """Return settings of a core that resumes for 30 s."""
    return {"resume": M, **settings}


class CutPair(Pair):
    """A pair that resumes. `a` dials; `resumes` and `answers` are the frames of all Resumes and of
    the first responses to them.
    """

    def __init__(
        self,
        a: CoreConfig | None = None,
        b: CoreConfig | None = None,
        *,
        observers: tuple[Observer | None, Observer | None] = (None, None),
    ) -> None:
        super().__init__(
            a or make_config(ALICE, resume=M), b or make_config(BOB, resume=M), observers=observers
        )
        self.resumes: list[bytes] = []
        self.answers: list[bytes] = []
        self._remains: ClosedSession | None = None

    def cut(self) -> None:
        """End the transport for both sides; bytes in transit are lost."""
        for side in self.sides:
            side.take(self.now)
            side.core.receive_eof(self.now)
            side.collect(self.now)

    def ask(self) -> tuple[ResumeAttempt, Connection, ResumeRequested | None]:
        """Dial as the initiator: return its attempt, the responder's new connection and its
        report.
        """
        attempt = self.a.core.start_attempt(self.now)
        resume = attempt.data_to_send(self.now)
        self.resumes.append(resume)
        return attempt, *self.listen(resume)

    def listen(self, resume: bytes) -> tuple[Connection, ResumeRequested | None]:
        """Pass these bytes to a new connection of the responder."""
        fresh = Connection(self.b.core.config, initiator=False, now=self.now)
        fresh.receive_data(resume, self.now)
        asked = [report for report in fresh.reports() if isinstance(report, ResumeRequested)]
        return fresh, asked[0] if asked else None

    def answer(self, fresh: Connection, asked: ResumeRequested | None) -> bytes:
        """Return the responder's answer on the new transport."""
        if asked is not None:
            core, resume = self.b.core, asked.resume
            remains = self._remains = self._remains or core.take_closed_session()
            if core.resumption is not None and resume.tag in core.resumption.tags:
                if core.accept_resume(resume, self.now):
                    rest = fresh.hand_over()
                    out = self.b.take(self.now)
                    self.b.core.receive_data(rest, self.now)
                    return out
            elif remains is not None and resume.tag in remains.tags:
                last = remains.answer(resume, self.now)
                if last is not None:
                    fresh.send_closed_session(last, self.now)
                    return fresh.data_to_send(self.now)
            else:
                spend_mac(resume)
            fresh.refuse_resume(self.now)
        return fresh.data_to_send(self.now)

    def come_back(self) -> ResumeAttempt:
        """Resume, and deliver the bytes of both sides."""
        attempt, fresh, asked = self.ask()
        answer = self.answer(fresh, asked)
        self.answers.append(answer)
        attempt.receive_data(answer, self.now)
        if attempt.outcome == "resumed":
            self.deliver(self.a, attempt.unread_bytes)
            self.pump()
        return attempt


def cut_pair(
    a: dict[str, Any] | None = None,
    b: dict[str, Any] | None = None,
    *,
    observers: tuple[Observer | None, Observer | None] = (None, None),
    **both: Any,
) -> CutPair:
    """Return a pair after its handshake that resumes for 30 s; settings are for one side or
    both.
    """
    pair = CutPair(
        make_config(ALICE, **resuming(**both, **(a or {}))),
        make_config(BOB, **resuming(**both, **(b or {}))),
        observers=observers,
    )
    pair.pump()
    pair.forget()
    return pair


def parted(side: Side) -> int:
    """Return how often a side was suspended."""
    return len(side.all(Suspended))


def resumed(side: Side) -> list[int]:
    """Return the numbers of its resumptions."""
    return [report.number for report in side.all(Resumed)]
