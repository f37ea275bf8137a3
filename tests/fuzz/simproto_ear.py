"""The other side of a fuzzed SimProto connection: the messages that it sent and received.

The reference decodes both, so that each response has its request, each Pong its Ping, and each
request of the core a distinct ID. Topics are not involved.
"""

from collections import deque

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.codec import LONGEST_PING_PAYLOAD
from tests.reference.dialects.reading import CLOSES, Wrong
from tests.reference.dialects.simproto import (
    Message,
    read_message,
    read_request,
    read_response,
)


class SimProtoEar:
    """`asked` and `pings` are what we sent and they have not answered, by id."""

    def __init__(self, limits: DialectLimits) -> None:
        self._limits = limits
        self.asked: dict[int, str] = {}
        self.pings: dict[int, None] = {}
        self._owed: dict[int, deque[str]] = {}
        # A Pong repeats the data of its Ping, which has a separate limit.
        self._longest = max(limits.longest_frame, LONGEST_PING_PAYLOAD)
        self._early: set[int] = set()  # Requests that were answered before they can have arrived.
        self._pinged: deque[tuple[int, bytes]] = deque()
        self._said = b""  # all, from `_judged` on
        self._judged = 0
        self._closes = False
        self._rest = b""

    # Sending.

    @property
    def is_whole(self) -> bool:
        """Whether they are not in the middle of a message."""
        return not self._said

    def say(self, data: bytes) -> None:
        """They send bytes, which the core may not have read yet."""
        self._said += data

    def judge(self, read: int) -> bool:
        """Read what the core has, which is all up to `read`; whether that breaks a rule."""
        while not self._closes:
            here = self._said[: read - self._judged]
            try:
                message, rest = read_message(here, self._longest)
                self._take(message)
            except Wrong as wrong:
                self._closes = wrong.fails == CLOSES
                break
            self._judged += len(here) - len(rest)
            self._said = self._said[len(here) - len(rest) :]
        return self._closes

    def _take(self, message: Message) -> None:
        match message.type:
            case "request":
                # An id may be in use again while its last response is on its way.
                kinds = self._owed.setdefault(message.id, deque())
                kinds.append(read_request(message.payload)[0])
            case "response":
                if self.asked.pop(message.id, None) is None:
                    self._early.add(message.id)
            case "ping":
                self._pinged.append((message.id, message.payload))
            case _:
                self.pings.pop(message.id, None)

    # Receiving.

    def hear(self, data: bytes, read: int) -> None:
        """The core sent bytes after it had read this many bytes of input."""
        self.judge(read)
        data = self._rest + data
        while data:
            try:
                message, data = read_message(data, self._longest)
            except Wrong as wrong:
                if wrong.fails == CLOSES:
                    raise AssertionError("the output is not a message") from wrong
                break
            self._check(message)
        self._rest = data

    def _check(self, message: Message) -> None:
        match message.type:
            case "request":
                assert message.id not in self.asked, "an id in use"
                kind = read_request(message.payload)[0]
                if message.id in self._early:
                    self._early.discard(message.id)
                    return
                self.asked[message.id] = kind
                assert len(self.asked) <= self._limits.requests
            case "response":
                kind = self._owed[message.id].popleft()
                meaning, data = read_response(kind, message.payload)
                assert message.payload[1:] == data, f"{meaning} has no data"
            case "ping":
                self.pings[message.id] = None
            case _:
                assert self._pinged.popleft() == (message.id, message.payload)
