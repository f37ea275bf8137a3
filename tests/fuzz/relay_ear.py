"""One client of a fuzzed relay: its received messages, decoded by the reference.

Whole messages are kept in order; there must be no other data.
"""

from typing import Any, Final

from parley._node.dialects.relay.connection import ClientIdentified
from parley._node.protocol.reports import ConnectionEnded
from tests.reference.dialects.reading import INCOMPLETE, Wrong
from tests.reference.dialects.relay import RelayMessage, read_message

NEVER: Final = float("inf")


class RelayEar:
    """A client; `heard` has its messages, `longest` is the largest allowed LEN; `let_in` tells
    whether the relay accepted the client's UUID, and `ended` how its connection ended.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""
        self.heard: list[RelayMessage] = []
        self.let_in = False
        self.ended: ConnectionEnded | None = None

    def take(self, report: Any) -> None:
        """Take a report of the relay's side."""
        assert isinstance(report, ClientIdentified)
        assert not self.let_in
        self.let_in = True

    def end(self, ended: ConnectionEnded) -> None:
        """The connection is over."""
        self.ended = ended

    def hear(self, data: bytes) -> None:
        """Bytes of the relay."""
        data = self._rest + data
        while data:
            try:
                message, data = read_message(data, self._longest)
            except Wrong as wrong:
                if wrong.fails != INCOMPLETE:
                    raise AssertionError("the output is not a message") from wrong
                break
            self.heard.append(message)
        self._rest = data

    def next_deadline(self) -> float:
        """Never: deadlines are the core's."""
        return NEVER

    def handle_deadline(self, now: float) -> None:
        """Return an empty list of requests."""

    def check(self) -> None:
        """Check that no partial message remains."""
        assert not self._rest
