"""What resuming a session says on the wire: tag, macs, and the events Resume and Resumed.

Neither is encrypted: the macs under K, which only the two sides of the session have, are all
that makes them worth anything (docs/protocol.md section 17). Which positions are right is
known elsewhere.
"""

import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

from parley._crypto.hashing import SHA256, HashAlgorithm
from parley._crypto.kdf import label
from parley._crypto.schedule import RESUME_LABEL, network_mac
from parley._lbm import keys
from parley._lbm.cells import read_bytes, read_uint
from parley._lbm.codec import Value, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import RESUME, RESUMED
from parley._node.protocol.event import handshake_event
from parley._node.protocol.frames import frame
from parley._node.protocol.hello import decode_handshake

TAG_SIZE: Final = 16
LAST_ATTEMPT: Final = 2**32 - 1
# The sides of a mac.
_RESUME, _RESUMED = b"\x00", b"\x01"


class ResumeRequest(NamedTuple):
    """A Resume as read: which session, the how-manieth attempt, how many bytes the initiator
    has taken, and the mac over them."""

    tag: bytes
    attempt: int
    received: int
    mac: bytes


class ResumeKey:
    """K, kept for the whole session; `count` below is the number of its resumptions so far."""

    __slots__ = ("_hash", "key")

    def __init__(self, hash: HashAlgorithm, exporter: bytes, session_id: bytes) -> None:
        self._hash = hash
        self.key = label(hash, exporter, "resume", session_id, hash.size)

    def tag(self, count: int) -> bytes:
        """The 16 bytes by which the responder finds the session."""
        return label(self._hash, self.key, "resume tag", count.to_bytes(4, "big"), TAG_SIZE)

    def resume_frame(
        self, count: int, attempt: int, received: int, network_key: bytes | None
    ) -> bytes:
        """The frame of Resume, with its network mac if there is a network key."""
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
        """The frame of Resumed, with `count` and `attempt` of the Resume that it answers."""
        cells: dict[int, Value] = {
            keys.ATTEMPT: attempt,
            keys.RECEIVED: received,
            keys.MAC: self._mac(_RESUMED, count, attempt, received),
        }
        return frame(handshake_event(RESUMED, encode(cells)))

    def find_count(self, resume: ResumeRequest, count: int) -> int | None:
        """Of `count` and the one before, the count that a Resume is of; None if its tag or its
        mac is wrong. Takes the same time for each."""
        found = None
        for number in (count, max(0, count - 1)):
            mac = self._mac(_RESUME, number, resume.attempt, resume.received)
            same_tag = hmac.compare_digest(self.tag(number), resume.tag)
            if hmac.compare_digest(mac, resume.mac) and same_tag:
                found = number
        return found

    def check_resumed(self, count: int, attempt: int, received: int, mac: bytes) -> bool:
        """Whether the mac of a Resumed is right."""
        return hmac.compare_digest(self._mac(_RESUMED, count, attempt, received), mac)

    def _mac(self, side: bytes, count: int, attempt: int, received: int) -> bytes:
        numbers = count.to_bytes(4, "big") + attempt.to_bytes(4, "big")
        covered = b"parley1 resume" + side + numbers + received.to_bytes(8, "big")
        return self._hash.hmac(self.key, covered)


_NOBODYS: Final = ResumeKey(SHA256, bytes(32), bytes(32))


def spend_mac(resume: ResumeRequest) -> None:
    """No session has this tag: take the time that checking it would have taken."""
    _NOBODYS.find_count(resume, 1)


def read_resume(cells: Mapping[int, Value]) -> ResumeRequest:
    """Read a Resume's cells (its network mac is checked already); raises LbmDecodeError."""
    return ResumeRequest(
        read_bytes(cells, keys.TAG, size=TAG_SIZE),
        read_uint(cells, keys.ATTEMPT, minimum=1, maximum=LAST_ATTEMPT),
        read_uint(cells, keys.RECEIVED),
        _read_mac(cells),
    )


def read_resumed(payload: bytes) -> tuple[int, int, bytes]:
    """Attempt, position and mac of a Resumed; raises LbmDecodeError."""
    cells = decode_handshake(payload)
    attempt = read_uint(cells, keys.ATTEMPT, minimum=1, maximum=LAST_ATTEMPT)
    return attempt, read_uint(cells, keys.RECEIVED), _read_mac(cells)


def _read_mac(cells: Mapping[int, Value]) -> bytes:
    mac = read_bytes(cells, keys.MAC)
    if len(mac) > 64:  # of the longest hash
        raise LbmDecodeError(f"a mac of {len(mac)} bytes; at most 64")
    return mac
