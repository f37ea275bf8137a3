"""The state that allows a session to resume over another transport (docs/protocol.md section 17).

`ResumeKey` computes and verifies the tags and MACs of Resume and Resumed. `Resumption` is the state
of one session. `ClosedSession` responds to a Resume for a few seconds after a session was closed.
"""

import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

from parley._crypto.hashing import SHA256, HashAlgorithm, label
from parley._crypto.key_schedule import RESUME_LABEL, network_mac
from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._lbm.fields import read_bytes, read_uint
from parley._node.protocol.codes import RESUME, RESUMED
from parley._node.protocol.errors import LimitReachedError
from parley._node.protocol.event import handshake_event
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake_messages import decode_handshake
from parley._node.protocol.limits import (
    CLOSED_PATIENCE,
    RESPONDER_PATIENCE,
    TELL_INTERVAL,
)
from parley._node.protocol.replay_buffer import ReplayBuffer

TAG_SIZE: Final = 16
LAST_ATTEMPT: Final = 2**32 - 1
# The sides of a MAC.
_RESUME, _RESUMED = b"\x00", b"\x01"


class ResumeRequest(NamedTuple):
    """A received Resume: the session's tag, the number of the attempt, how many bytes the initiator
    has received, and the MAC.
    """

    tag: bytes
    attempt: int
    received: int
    mac: bytes


class ResumeKey:
    """The key K of a session. `count` in its methods is the number of previous resumptions."""

    __slots__ = ("_hash", "key")

    def __init__(self, hash: HashAlgorithm, exporter: bytes, session_id: bytes) -> None:
        self._hash = hash
        self.key = label(hash, exporter, "resume", session_id, hash.size)

    def tag(self, count: int) -> bytes:
        """Return the 16 bytes by which the responder finds the session."""
        return label(self._hash, self.key, "resume tag", count.to_bytes(4, "big"), TAG_SIZE)

    def resume_frame(
        self, count: int, attempt: int, received: int, network_key: bytes | None
    ) -> bytes:
        """Return the frame of Resume, with a network MAC if there is a network key."""
        cells: dict[int, Value] = {
            keys.TAG: self.tag(count),
            keys.ATTEMPT: attempt,
            keys.RECEIVED: received,
            keys.MAC: self._mac(_RESUME, count, attempt, received),
        }
        if network_key is not None:
            mac = network_mac(network_key, encode(cells), RESUME_LABEL)
            cells = {keys.NETWORK_MAC: mac, **cells}
        return frame(handshake_event(RESUME, encode(cells)))

    def resumed_frame(self, count: int, attempt: int, received: int) -> bytes:
        """Return the frame of Resumed, with `count` and `attempt` of its Resume."""
        cells: dict[int, Value] = {
            keys.ATTEMPT: attempt,
            keys.RECEIVED: received,
            keys.MAC: self._mac(_RESUMED, count, attempt, received),
        }
        return frame(handshake_event(RESUMED, encode(cells)))

    def find_count(self, resume: ResumeRequest, count: int) -> int | None:
        """Return the count of a Resume, which is `count` or one less; None if its tag or MAC is
        wrong. Takes constant time.
        """
        found = None
        for number in (count, max(0, count - 1)):
            mac = self._mac(_RESUME, number, resume.attempt, resume.received)
            same_tag = hmac.compare_digest(self.tag(number), resume.tag)
            if hmac.compare_digest(mac, resume.mac) and same_tag:
                found = number
        return found

    def check_resumed(self, count: int, attempt: int, received: int, mac: bytes) -> bool:
        """Return whether the MAC of a Resumed is right."""
        return hmac.compare_digest(self._mac(_RESUMED, count, attempt, received), mac)

    def _mac(self, side: bytes, count: int, attempt: int, received: int) -> bytes:
        numbers = count.to_bytes(4, "big") + attempt.to_bytes(4, "big")
        covered = b"parley1 resume" + side + numbers + received.to_bytes(8, "big")
        return self._hash.hmac(self.key, covered)


_NOBODYS: Final = ResumeKey(SHA256, bytes(32), bytes(32))


def spend_mac(resume: ResumeRequest) -> None:
    """Spend the time that verifying a MAC takes, because no session has this tag."""
    _NOBODYS.find_count(resume, 1)


def read_resume(cells: Mapping[int, Value]) -> ResumeRequest:
    """Parse the cells of a Resume whose network MAC was verified; raises LbmDecodeError."""
    return ResumeRequest(
        read_bytes(cells, keys.TAG, size=TAG_SIZE),
        read_uint(cells, keys.ATTEMPT, minimum=1, maximum=LAST_ATTEMPT),
        read_uint(cells, keys.RECEIVED),
        read_bytes(cells, keys.MAC),
    )


def read_resumed(payload: bytes) -> tuple[int, int, bytes]:
    """Return attempt, position and MAC of a Resumed; raises LbmDecodeError."""
    cells = decode_handshake(payload)
    attempt = read_uint(cells, keys.ATTEMPT, minimum=1, maximum=LAST_ATTEMPT)
    return attempt, read_uint(cells, keys.RECEIVED), read_bytes(cells, keys.MAC)


NEVER: Final = float("inf")


class Resumption:
    """The resumption state of one session. `count` is the number of its resumptions so far.

    `received` is the position up to which the peer's bytes were received, `told` the last
    acknowledged position. Received is due at `tell_due`; after `ride_at` it is added to other
    frames.
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
        kept: ReplayBuffer,
        now: float,
    ) -> None:
        self._key = key
        self._seconds = seconds
        self._initiator = initiator
        self.attempt = 0  # the last one started, or the highest one accepted
        self.count = 0
        self.kept = kept
        self.received = 0
        self.position_acknowledged(now, 0)

    def __repr__(self) -> str:
        return f"<Resumption: {self.count} so far, {self.held:,} bytes stored>"

    @property
    def held(self) -> int:
        """Number of bytes stored to be sent again."""
        return self.kept.held

    @property
    def tags(self) -> tuple[bytes, ...]:
        """The tags under which the session can be resumed now: the next one, and the previous one
        in case Resumed was lost.
        """
        if not self.count:
            return (self._key.tag(0),)
        return self._key.tag(self.count), self._key.tag(self.count - 1)

    @property
    def can_suspend(self) -> bool:
        """Whether the peer is known to have the session too. An initiator knows it once it has
        received bytes.
        """
        return not self._initiator or self.received > 0

    @property
    def patience(self) -> float:
        """How long a suspended session is stored, in seconds."""
        return self._seconds if self._initiator else self._seconds + RESPONDER_PATIENCE

    @property
    def closed_patience(self) -> float:
        """How long a closed session is stored, in seconds."""
        return min(self._seconds, CLOSED_PATIENCE)

    def position_acknowledged(self, now: float, position: int) -> None:
        """Record that `position` is acknowledged."""
        self.told = position
        self.ride_at = now + TELL_INTERVAL
        self.tell_due = NEVER

    # As the initiator.

    def next_attempt(self, network_key: bytes | None) -> bytes:
        """Return the frame of a new attempt's Resume."""
        if self.attempt >= LAST_ATTEMPT:
            raise LimitReachedError(f"cannot resume: {self.attempt} attempts were made")
        self.attempt += 1
        return self._key.resume_frame(self.count, self.attempt, self.received, network_key)

    def is_resumed(self, attempt: int, received: int, mac: bytes) -> bool:
        """Return whether a Resumed answers our last attempt and is valid."""
        right = self._key.check_resumed(self.count, attempt, received, mac)
        return right and attempt == self.attempt and self.could_have(received)

    # As the responder.

    def find_count(self, resume: ResumeRequest) -> int | None:
        """Return the count of a Resume if its tag, MAC and attempt are valid; otherwise None."""
        count = self._key.find_count(resume, self.count)
        return count if resume.attempt > self.attempt else None

    def could_have(self, position: int) -> bool:
        """Return whether the peer can have received all bytes before `position`."""
        return self.kept.told <= position <= self.kept.sent

    def accept(self, resume: ResumeRequest, count: int) -> bytes:
        """Accept a valid Resume with that count; return the frame of Resumed."""
        self.attempt = resume.attempt
        if count == self.count:
            self.count += 1
        return self._key.resumed_frame(count, resume.attempt, self.received)


class ClosedSession:
    """The remaining bytes of a session that sent Close. It responds to a Resume until the time
    `until`.

    The Close and bytes before it may have been lost. They are sent again; received bytes are
    discarded. A node finds it by the tags in `found_by`.
    """

    __slots__ = ("_frames", "_resumption", "found_by", "until")

    def __init__(self, resumption: Resumption, frames: list[bytes], until: float) -> None:
        self._resumption = resumption
        self._frames = frames  # encrypted, but never passed to a transport
        self.until = until
        self.found_by: tuple[bytes, ...] = ()

    @property
    def tags(self) -> tuple[bytes, ...]:
        """The tags under which the session can be resumed now."""
        return self._resumption.tags

    @property
    def held(self) -> int:
        """Number of stored bytes."""
        return self._resumption.held + sum(map(len, self._frames))

    def answer(self, resume: ResumeRequest, now: float) -> bytes | None:
        """Return the bytes to send over the new transport: Resumed and the missing bytes including
        Close. None means to send Reject `unknown-session`.
        """
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
