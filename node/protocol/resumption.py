"""How one session outlives its transports: its key, its counts, and both directions' positions.

What is sent is kept until the other side has told that it took it (`SentBytes`); what was taken is
told by rules of its own, so that idle sides do not answer each other for ever (docs/protocol.md
section 17).
"""

from typing import Final

from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.limits import (
    CLOSED_PATIENCE,
    RESPONDER_PATIENCE,
    TELL_INTERVAL,
)
from parley._node.protocol.resume import LAST_ATTEMPT, ResumeKey, ResumeRequest
from parley._node.protocol.sent_bytes import SentBytes

NEVER: Final = float("inf")


class Resumption:
    """One session's part in resuming. `count` is the number of its resumptions so far.

    `received` is the position up to which the session took the other direction, `told` the one
    that the other side was told last. Received is due at `tell_due`, and with what else is written
    after `ride_at`.
    """

    __slots__ = (
        "_initiator",
        "_key",
        "_seconds",
        "attempt",
        "count",
        "kept",
        "received",
        "ride_at",
        "tell_due",
        "told",
    )

    def __init__(
        self,
        key: ResumeKey,
        seconds: float,
        *,
        initiator: bool,
        kept: SentBytes,
        now: float,
    ) -> None:
        self._key = key
        self._seconds = seconds
        self._initiator = initiator
        self.attempt = 0  # the last one made, or the highest one accepted
        self.count = 0
        self.kept = kept
        self.received = 0
        self.tell(now, 0)

    def __repr__(self) -> str:
        return f"<Resumption: {self.count} so far, {self.held:,} bytes kept>"

    @property
    def held(self) -> int:
        """Bytes that are kept to be sent again."""
        return self.kept.held

    @property
    def tags(self) -> tuple[bytes, ...]:
        """The tags under which the session may be resumed now, 16 bytes each: the one that is
        next, and the one before, should Resumed have been lost."""
        if not self.count:
            return (self._key.tag(0),)
        return self._key.tag(self.count), self._key.tag(self.count - 1)

    @property
    def can_part(self) -> bool:
        """Whether the other side has the session as well: an initiator that heard nothing
        does not know whether its Proof came."""
        return not self._initiator or self.received > 0

    @property
    def patience(self) -> float:
        """How long a parted session is kept, in seconds."""
        return self._seconds if self._initiator else self._seconds + RESPONDER_PATIENCE

    @property
    def closed_patience(self) -> float:
        """The same once it was closed."""
        return min(self._seconds, CLOSED_PATIENCE)

    # What was taken, and is to be told.

    def tell(self, now: float, position: int) -> None:
        """The other side is told that all before `position` was taken."""
        self.told = position
        self.ride_at = now + TELL_INTERVAL
        self.tell_due = NEVER

    # Coming back, as the initiator.

    def next_attempt(self, network_key: bytes | None) -> bytes:
        """The frame of a new attempt's Resume."""
        if self.attempt >= LAST_ATTEMPT:
            raise LocalProtocolError(f"too many attempts to resume: {self.attempt}")
        self.attempt += 1
        return self._key.resume_frame(self.count, self.attempt, self.received, network_key)

    def is_resumed(self, attempt: int, received: int, mac: bytes) -> bool:
        """Whether a Resumed answers our last attempt and is right."""
        right = self._key.check_resumed(self.count, attempt, received, mac)
        return right and attempt == self.attempt and self.could_have(received)

    # And as the responder.

    def find_count(self, resume: ResumeRequest) -> int | None:
        """The count that a Resume is of, if its tag, mac and attempt are right."""
        count = self._key.find_count(resume, self.count)
        return count if resume.attempt > self.attempt else None

    def could_have(self, position: int) -> bool:
        """Whether the other side may have taken all before `position`, and told no more."""
        return self.kept.told <= position <= self.kept.sent

    def accept(self, resume: ResumeRequest, count: int) -> bytes:
        """Take a Resume of that count, which is right; the frame of Resumed."""
        self.attempt = resume.attempt
        if count == self.count:
            self.count += 1
        return self._key.resumed_frame(count, resume.attempt, self.received)
