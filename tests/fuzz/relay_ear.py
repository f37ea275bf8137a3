"""One client of a fuzzed relay: what it hears, read by the reference.

Whole messages are kept in their order, and nothing else comes.
"""

from typing import Any, Final

from parley._node.dialects.relay.connection import ClientIdentified
from parley._node.protocol.reports import ConnectionEnded
from tests.reference.dialects.reading import INCOMPLETE, Wrong
from tests.reference.dialects.relay import RelayMessage, read_message

NEVER: Final = float("inf")


class RelayEar:
    """`heard` is what came, `longest` the greatest LEN that may; `let_in` is whether the
    relay took the client's UUID, `ended` how its connection did."""

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
                    raise AssertionError("what we say is no message") from wrong
                break
            self.heard.append(message)
        self._rest = data

    def next_deadline(self) -> float:
        """Never: deadlines are the core's."""
        return NEVER

    def handle_deadline(self, now: float) -> None:
        """There are none."""

    def check(self) -> None:
        """Nothing is left in pieces."""
        assert not self._rest
