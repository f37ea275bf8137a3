"""Target `relay_client`: a client of the event relay with arbitrary input from the relay.

Each message is reported, counted or answered by closing, as the reference decodes it. The input is
a byte for the limits, a byte for how the transport cuts, and a script.
"""

from collections import deque
from contextlib import suppress
from typing import Any, Final

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.client import MESSAGE_COST, RelayClientConnection
from parley._node.dialects.relay.codec import RelayFault, RelayMessage
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded
from tests.fuzz.allowed import APPLICATION
from tests.fuzz.line import NEVER, PIECES, START, Event, Line
from tests.fuzz.script import Kind, Step, parse
from tests.reference.dialects import relay
from tests.reference.dialects.reading import INCOMPLETE, Wrong
from tests.reference.dialects.relay import BROADCAST, SERVER, UUIDS

MAX_SIZE: Final = 4096
LIMITS: Final = (
    DialectLimits(),
    # Small ones, so that a short script reaches them.
    DialectLimits(longest_frame=96, client_memory=1024, idle_timeout=20.0),
)
OWN: Final = b"what I am called"
OTHER: Final = b"what another is "
TARGETS: Final = (OWN, BROADCAST, OTHER)
SENDERS: Final = (OTHER, OWN, SERVER)
VIOLATIONS: Final = (CloseCode.PROTOCOL_ERROR, CloseCode.FRAME_TOO_LARGE)


def fuzz(data: bytes) -> None:
    """Hold the conversation."""
    limits = LIMITS[data[0] % len(LIMITS)] if data else LIMITS[0]
    piece = PIECES[data[1] % len(PIECES)] if len(data) > 1 else 0
    core = RelayClientConnection(OWN, limits, START)
    reader = _Reader(core, limits)
    line = Line(core, reader, piece)
    said = b""
    for step in parse(data[2:]):
        if step.kind is not Kind.ACTION:
            said += step.payload if step.kind is Kind.RAW else _message(step)
            if not step.held:
                line.receive(said)
                reader.said += said
                said = b""
        elif (event := Event(step.category % len(Event))) is Event.ACT:
            with suppress(*APPLICATION):
                reader.act(step)
            line.settle()
        else:
            line.happen(event, step)
    line.finish(reader.finish)
    reader.check_end(line.read)


def _message(step: Step) -> bytes:
    """A message of the relay, or an error if it has a code."""
    to = TARGETS[step.category % len(TARGETS)]
    if step.kind is Kind.SEALED:
        return relay.error(to, step.async_id, step.payload.decode(errors="replace")).raw
    sender = SENDERS[step.subcategory % len(SENDERS)]
    return relay.RelayMessage(to, sender, step.payload).raw


class _Reader:
    """A reader of messages, controlled by a script."""

    def __init__(self, core: RelayClientConnection, limits: DialectLimits) -> None:
        self._core = core
        self._limits = limits
        self._unread: deque[RelayMessage] = deque()
        self._taken = 0
        self._sent = [OWN]
        self._heard = b""
        self._ended: ConnectionEnded | None = None
        self.said = b""

    # For the line.

    def take(self, report: Any) -> None:
        """Process a message, or a notice of the relay."""
        self._taken += 1
        if isinstance(report, RelayMessage):
            assert report.sender_bytes != SERVER
            assert report.sender.bytes == report.sender_bytes
            self._unread.append(report)
        else:
            assert isinstance(report, RelayFault)
            assert report.code == 5 or self._core.fault is not None

    def end(self, ended: ConnectionEnded) -> None:
        """The connection is over."""
        self._ended = ended

    def hear(self, data: bytes) -> None:
        """The client sent its UUID and then the requested messages."""
        self._heard += data
        assert b"".join(self._sent).startswith(self._heard)

    def next_deadline(self) -> float:
        """Never: deadlines are the core's."""
        return NEVER

    def handle_deadline(self, now: float) -> None:
        """Return an empty list of requests."""

    def check(self) -> None:
        """Check that a slow reader gets no further messages."""
        unread = sum(len(message.payload) + MESSAGE_COST for message in self._unread)
        core, most = self._core, self._limits.client_memory
        assert core.closing or core.wants_data == (unread <= most)

    def finish(self) -> bool:
        """Read all that came; whether there was any."""
        busy = bool(self._unread)
        while self._unread:
            self._core.consumed(self._unread.popleft())
        return busy

    def check_end(self, read: int) -> None:
        """All messages that were whole were taken, up to the one that may not be."""
        assert self._ended is not None
        count, others, rest, wrong = 0, 0, self.said[:read], INCOMPLETE
        try:
            while rest:
                message, rest = relay.read_message(rest, self._limits.longest_frame)
                if message.sender == SERVER:
                    assert message.error
                elif message.to not in (OWN, BROADCAST):
                    others += 1
                count += 1
        except Wrong as error:
            wrong = error.fails
        taken = self._taken + self._core.misdirected
        if self._ended.code in VIOLATIONS:
            assert wrong != INCOMPLETE, "the reference takes it"
        if self._ended.code == CloseCode.CONNECTION_LOST:
            assert wrong == INCOMPLETE, "the reference refuses it"
        if self._ended.code in (*VIOLATIONS, CloseCode.CONNECTION_LOST):
            assert taken == count, "a message is lost"
            assert self._core.misdirected == others
        assert taken <= count

    # What a script makes it do.

    def act(self, step: Step) -> None:
        """Send a message, or read one; LocalError if it may not be sent now."""
        if step.subcategory % 2:
            to = TARGETS[step.stream % len(TARGETS)]
            self._core.send(to, step.payload)
            assert UUIDS + len(step.payload) <= self._limits.longest_frame
            self._sent.append(relay.RelayMessage(to, OWN, step.payload).raw)
        elif self._unread:
            self._core.consumed(self._unread.popleft())
