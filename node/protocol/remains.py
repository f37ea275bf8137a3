"""What is left of a session that sent Close: for a few seconds a Resume is answered all the same.

A cut may have swallowed the Close and bytes before it; they are sent again, and what comes in
return is discarded (docs/protocol.md section 17).
"""

from parley._node.protocol.resume import ResumeRequest, spend_mac
from parley._node.protocol.resumption import Resumption


class Remains:
    """The bytes of a closed session that the other side may lack, until the time `until`;
    `found_by` are the tags under which its node finds it."""

    __slots__ = ("_frames", "_resumption", "found_by", "until")

    def __init__(self, resumption: Resumption, frames: list[bytes], until: float) -> None:
        self._resumption = resumption
        self._frames = frames  # encrypted, and never handed to a transport
        self.until = until
        self.found_by: tuple[bytes, ...] = ()

    @property
    def tags(self) -> tuple[bytes, ...]:
        """The tags under which the session may be resumed now."""
        return self._resumption.tags

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return self._resumption.held + sum(map(len, self._frames))

    def answer(self, resume: ResumeRequest, now: float) -> bytes | None:
        """All that is sent on the new transport, which is over then: Resumed and what is
        missing, Close included. None: answer Reject `unknown-session`."""
        if now >= self.until:
            spend_mac(resume)
            return None
        resumption = self._resumption
        count = resumption.find_count(resume)
        if count is None or not resumption.could_have(resume.received):
            return None
        kept = resumption.kept
        resumed = resumption.accept(resume, count)
        kept.release(resume.received)
        return b"".join((resumed, *kept.missing(), *self._frames))
