"""The messages and counts of resuming (section 17): K, tags, macs, Resume and Resumed, positions.

Decisions from bytes and numbers, independent of sockets, of dialling, and of the contents of
counted frames.
"""

import hmac
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from tests.reference import cbor
from tests.reference.allowances import TELL_BYTES
from tests.reference.handshake import NETWORK_LABELS, handshake_cells, network_mac
from tests.reference.primitives import derive, hmac_of
from tests.reference.sealing import Direction
from tests.reference.wire import CELLS, TYPES, Event, Violation

TAG_SIZE: Final = 16
LAST_ATTEMPT: Final = 2**32 - 1
LAST_POSITION: Final = 2**64 - 1
RESUME, RESUMED = 0, 1  # the sides of a mac
# Events that two idle sides would otherwise answer forever.
QUIET: Final = frozenset(TYPES[name] for name in ("Received", "Ping", "Pong", "Seal"))


class UnknownSession(Exception):
    """Reject 14; with `ends` the session is over as well (`protocol-error`)."""

    def __init__(self, why: str, *, ends: bool = False) -> None:
        super().__init__(why)
        self.ends = ends


class Refused(Exception):
    """An invalid Resumed: the transport is dropped, and the session remains suspended."""


@dataclass(frozen=True)
class Answer:
    """The cells of a Resume (with its tag) or of a Resumed."""

    attempt: int
    received: int
    mac: bytes
    tag: bytes = b""


def resume_key(hash_name: str, exporter: bytes, session_id: bytes, size: int) -> bytes:
    """K; `size` is h."""
    return derive(hash_name, exporter, "resume", session_id, size)


def tag(hash_name: str, key: bytes, count: int) -> bytes:
    """The tag after `count` resumptions."""
    return derive(hash_name, key, "resume tag", count.to_bytes(4), TAG_SIZE)


def mac_input(side: int, count: int, attempt: int, received: int) -> bytes:
    """What a mac is made over."""
    numbers = count.to_bytes(4) + attempt.to_bytes(4) + received.to_bytes(8)
    return b"parley1 resume" + bytes([side]) + numbers


def mac(hash_name: str, key: bytes, side: int, count: int, attempt: int, received: int) -> bytes:
    """The mac of a Resume (side 0) or Resumed (side 1)."""
    return hmac_of(hash_name, key, mac_input(side, count, attempt, received))


def resume_event(
    tagged: bytes, attempt: int, received: int, code: bytes, network_key: bytes | None = None
) -> bytes:
    """The raw Resume event."""
    cells: dict[int, Any] = {
        CELLS["tag"]: tagged,
        CELLS["attempt"]: attempt,
        CELLS["received"]: received,
        CELLS["mac_of_resume"]: code,
    }
    if network_key is not None:
        label = NETWORK_LABELS[TYPES["Resume"]]
        cells[CELLS["mac"]] = network_mac(network_key, cells, label)
    return Event(0, 0, *TYPES["Resume"], cbor.encode_payload(cells)).raw


def resumed_event(attempt: int, received: int, code: bytes) -> bytes:
    """The raw Resumed event."""
    cells = {
        CELLS["attempt"]: attempt,
        CELLS["received"]: received,
        CELLS["mac_of_resume"]: code,
    }
    return Event(0, 0, *TYPES["Resumed"], cbor.encode_payload(cells)).raw


def read_answer(event: bytes, name: str) -> Answer:
    """The cells of a raw Resume or Resumed; raises Violation."""
    kind, cells = handshake_cells(event)
    if kind != TYPES[name]:
        raise Violation("protocol-error", f"not a {name}")
    attempt, received = cells.get(CELLS["attempt"], 0), cells.get(CELLS["received"])
    code, tagged = cells.get(CELLS["mac_of_resume"]), cells.get(CELLS["tag"], b"")
    if not 1 <= attempt <= LAST_ATTEMPT:
        raise Violation("protocol-error", "attempt")
    if received is None or received > LAST_POSITION:
        raise Violation("protocol-error", "received")
    if code is None:
        raise Violation("protocol-error", "no mac")
    if name == "Resume" and len(tagged) != TAG_SIZE:
        raise Violation("protocol-error", "tag")
    return Answer(attempt, received, code, tagged if name == "Resume" else b"")


class TopicHistory:
    """The local direction: the bytes from `told` to `sent`, as they were written."""

    def __init__(self) -> None:
        self.told = 0
        self.sent = 0
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        """A frame that is handed to the transport, or would be if there were one."""
        self._bytes += data
        self.sent += len(data)

    def release(self, position: int) -> None:
        """The other side has everything before `position`; raises Violation."""
        if not self.told <= position <= self.sent:
            raise Violation("protocol-error", "a position that cannot be")
        del self._bytes[: position - self.told]
        self.told = position

    def missing(self) -> bytes:
        """Return the bytes to retransmit."""
        return bytes(self._bytes)


class Resumption:
    """The counts of one session.

    `count` is m (the initiator's) or n (the responder's), `attempt` the last one made or accepted,
    `received` the local position, and `heard` the last position that the other side acknowledged.
    """

    def __init__(self, hash_name: str, key: bytes) -> None:
        self.hash = hash_name
        self.key = key
        self.count = 0
        self.attempt = 0
        self.kept = TopicHistory()
        self.received = 0
        self.heard = 0
        self._last = 0  # The position in the last Received.
        self._expected = 1  # how many of the next may acknowledge little: one per transport
        # The other direction's chain value and counters, until an event of the new transport
        # decrypts.
        self.trial: tuple[bytes, dict[int, int]] | None = None
        self._since = -1.0  # arrival of the first unacknowledged event; negative: none

    def took(self, size: int, kind: tuple[int, int]) -> None:
        """A frame of the other direction, whose event decrypted."""
        self.trial = None
        self.received += size
        if kind not in QUIET and self._since < 0:
            self._since = perf_counter()

    def tell_due(self) -> bool:
        """Whether Received is to be sent: this side does so later than it may, at events alone."""
        due = self.received - self.heard >= TELL_BYTES
        if due or (self._since >= 0 and perf_counter() - self._since >= 1):
            self._since = -1.0
            return True
        return False

    def told(self, position: int) -> int | None:
        """Process a Received of the other side. Return how many more bytes it acknowledges than the
        one before, or None if it doesn't count.

        A retransmitted Received may acknowledge less than a later Resume or Resumed.
        """
        if position < self._last:
            raise Violation("protocol-error", "a position that falls")
        progress, self._last = position - self._last, position
        if position > self.kept.told:
            self.kept.release(position)
        if self._expected and progress < TELL_BYTES:
            self._expected -= 1
            return None
        return progress

    def begin(self, direction: Direction) -> None:
        """A new transport; `direction` is the other side's."""
        self._expected += 1
        self.trial = direction.chain, dict(direction.counters)

    def tags(self) -> list[bytes]:
        """The tags under which a responder takes a Resume now."""
        counts = (self.count, self.count - 1) if self.count else (0,)
        return [tag(self.hash, self.key, count) for count in counts]

    def ask(self, network_key: bytes | None = None) -> bytes:
        """The initiator's next raw Resume event."""
        self.attempt += 1
        code = self._mac(RESUME, self.count, self.attempt, self.received)
        tagged = tag(self.hash, self.key, self.count)
        return resume_event(tagged, self.attempt, self.received, code, network_key)

    def answer(self, event: bytes) -> bytes:
        """The responder's raw Resumed event; raises Violation (malformed) or UnknownSession."""
        resume = read_answer(event, "Resume")
        tags = self.tags()
        if resume.tag not in tags:
            raise UnknownSession("tag")
        count = self.count - tags.index(resume.tag)
        wanted = self._mac(RESUME, count, resume.attempt, resume.received)
        if not hmac.compare_digest(resume.mac, wanted):
            raise UnknownSession("mac")
        if resume.attempt <= self.attempt:
            raise UnknownSession("attempt")
        try:
            self.kept.release(resume.received)
        except Violation as violation:
            raise UnknownSession("received", ends=True) from violation
        self.attempt = resume.attempt
        if count == self.count:
            self.count += 1
        self.heard = self.received
        code = self._mac(RESUMED, count, resume.attempt, self.received)
        return resumed_event(resume.attempt, self.received, code)

    def complete(self, event: bytes) -> None:
        """The initiator takes Resumed; raises Refused for anything else."""
        try:
            resumed = read_answer(event, "Resumed")
        except Violation as violation:
            raise Refused(violation.why) from violation
        wanted = self._mac(RESUMED, self.count, self.attempt, resumed.received)
        if resumed.attempt != self.attempt or not hmac.compare_digest(resumed.mac, wanted):
            raise Refused("mac or attempt")
        try:
            self.kept.release(resumed.received)
        except Violation as violation:
            raise Refused("received") from violation
        self.count += 1
        self.heard = self.received

    def _mac(self, side: int, count: int, attempt: int, received: int) -> bytes:
        return mac(self.hash, self.key, side, count, attempt, received)
