"""Requests both ways on one connection: what we ask, and what we are asked (section 9).

It joins `OutgoingCalls`, `IncomingCalls`, `NamedEvents`, `Logins` and `StreamRequests`, which share
ids and a timer, and decides nothing of its own.
"""

from collections.abc import Callable

from parley._node.messaging.application_events import StreamRequests
from parley._node.messaging.incoming_requests import (
    FinalCallback,
    IncomingCall,
    IncomingCalls,
    ignore_final,
)
from parley._node.messaging.logins import Decide, Logins, nobody
from parley._node.messaging.named_events import NO_HANDLER, IncomingEmit, NamedEvents
from parley._node.messaging.outgoing_requests import OutgoingCalls
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import UNANSWERED_REQUESTS


def _nobody(namespace: str, name: str) -> ResultCode:
    return NO_HANDLER


class RequestMux:
    """All requests of one connection; the arguments are those of `IncomingCalls`, and
    `find_event` that of `NamedEvents`, whose events `run_event` (or `run`) and `stop` get;
    `login` decides for `Logins`."""

    __slots__ = ("incoming", "logins", "named", "outgoing", "stream_requests")

    def __init__(
        self,
        connection: Connection,
        find: Callable[[int, str], object],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        *,
        find_event: Callable[[str, str], object] = _nobody,
        run_event: Callable[[IncomingEmit], None] | None = None,
        login: Decide = nobody,
        on_final: FinalCallback = ignore_final,
        count_limit: int = UNANSWERED_REQUESTS,
    ) -> None:
        self.outgoing = OutgoingCalls(connection)
        self.incoming = IncomingCalls(
            connection, find, run, stop, on_final=on_final, count_limit=count_limit
        )
        self.stream_requests = StreamRequests(
            connection, self.incoming.require_free, count_limit=count_limit
        )
        self.named = NamedEvents(
            connection, self.outgoing, self.incoming, find_event, run_event or run
        )
        self.logins = Logins(connection, self.outgoing, self.incoming, login)

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""
        return min(
            self.outgoing.deadlines.earliest,
            self.incoming.deadlines.earliest,
            self.stream_requests.deadlines.earliest,
        )

    def handle_deadline(self, now: float) -> None:
        """End what is late, on either side."""
        self.outgoing.handle_deadline(now)
        self.incoming.handle_deadline(now)
        self.stream_requests.handle_deadline(now)

    def connection_ended(self, code: int, text: str) -> None:
        """Callers get `LOST`, handlers are stopped."""
        self.outgoing.connection_ended(code, text)
        self.incoming.connection_ended()
        self.stream_requests.connection_ended()
