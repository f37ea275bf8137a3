"""The other side of a fuzzed connection with named events: the events that it sent and received.

The reference decodes both, event by event. Handlers are not involved.
"""

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import LENGTHS_SIZE, TOTAL_SIZE
from parley._node.dialects.named.core import FIRST_ID
from tests.reference.dialects.named import NamedEvent, read_error_payload, read_event
from tests.reference.dialects.reading import CLOSES, Wrong


class NamedEar:
    """The state of the other side; `heard` has the IDs of the core's events, in order; `events`
    counts complete events that the core has received.
    """

    def __init__(self, limits: DialectLimits, *, typed: bool) -> None:
        self._limit = limits.longest_frame - LENGTHS_SIZE
        self._typed = typed
        self.heard: list[int] = []
        self.events = 0
        self._said = b""  # all, from `_judged` on
        self._judged = 0
        self._ids: set[int] = set()
        self._closes = False
        self._rest = b""

    def say(self, data: bytes) -> None:
        """They send bytes, which the core may not have read yet."""
        self._said += data

    def judge(self, read: int) -> bool:
        """Read what the core has, which is all up to `read`; whether that breaks a rule."""
        while not self._closes:
            here = self._said[: read - self._judged]
            try:
                event, rest = read_event(here, self._limit, typed=self._typed)
            except Wrong as wrong:
                # Headers are judged once their event is whole.
                whole = int.from_bytes(here[:TOTAL_SIZE]) + LENGTHS_SIZE
                waits = len(here) < whole <= self._limit + LENGTHS_SIZE
                self._closes = wrong.fails == CLOSES and not waits
                break
            self.events += 1
            self._ids.add(event.id)
            self._judged += len(here) - len(rest)
            self._said = self._said[len(here) - len(rest) :]
        return self._closes

    def hear(self, data: bytes, read: int) -> None:
        """The core sent bytes after it had read this many bytes of input."""
        self.judge(read)
        data = self._rest + data
        while data:
            try:
                event, data = read_event(data, self._limit, typed=self._typed)
            except Wrong as wrong:
                if wrong.fails == CLOSES:
                    raise AssertionError("the output is not a message") from wrong
                break
            self._check(event)
        self._rest = data

    def _check(self, event: NamedEvent) -> None:
        assert event.id == FIRST_ID + len(self.heard)
        self.heard.append(event.id)
        assert event.ref_id is None or event.ref_id in self._ids, "a reply without a request"
        if event.kind is not None:
            assert (event.kind == "initiator") == (event.ref_id is None)
        if event.kind == "error":
            read_error_payload(event.data)
