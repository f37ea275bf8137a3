"""All requests of one connection, in both directions (section 9)."""

from collections.abc import Callable
from typing import Any

from parley._node.messaging.application_events import StreamRequests
from parley._node.messaging.deadline_queue import DeadlineQueue
from parley._node.messaging.incoming_requests import (
    FinalCallback,
    IncomingCall,
    IncomingCalls,
    ignore_final,
)
from parley._node.messaging.logins import Decide, Logins, nobody
from parley._node.messaging.named_events import NO_HANDLER, IncomingEmit, NamedEvents
from parley._node.messaging.outgoing_requests import OutgoingCall, OutgoingCalls
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import UNANSWERED_REQUESTS


def _no_handler(namespace: str, name: str) -> ResultCode:
    return NO_HANDLER


class RequestMux:
    """Creates the tables of requests, which share async ids and `deadlines`.

    `find`, `run` and `stop` are those of `IncomingCalls`. `find_event` looks up named events,
    which `run_event` (by default `run`) starts. `login` decides on logins.
    """

    __slots__ = ("deadlines", "incoming", "logins", "named", "outgoing", "stream_requests")

    def __init__(
        self,
        connection: Connection,
        find: Callable[[int, str], object],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        *,
        find_event: Callable[[str, str], object] = _no_handler,
        run_event: Callable[[IncomingEmit], None] | None = None,
        login: Decide = nobody,
        on_final: FinalCallback = ignore_final,
        count_limit: int = UNANSWERED_REQUESTS,
    ) -> None:
        self.deadlines: DeadlineQueue[Any] = DeadlineQueue()
        self.outgoing = OutgoingCalls(connection, self.deadlines)
        self.incoming = IncomingCalls(
            connection, self.deadlines, find, run, stop, on_final=on_final, count_limit=count_limit
        )
        self.stream_requests = StreamRequests(
            connection, self.deadlines, self.incoming.require_free, count_limit=count_limit
        )
        self.named = NamedEvents(
            connection, self.outgoing, self.incoming, find_event, run_event or run
        )
        self.logins = Logins(connection, self.outgoing, self.incoming, login)

    def expire_calls(self, now: float) -> None:
        """End all requests whose deadline has passed."""
        for request in self.deadlines.pop_due(now):
            if isinstance(request, OutgoingCall):
                self.outgoing.too_late(request)
            elif isinstance(request, IncomingCall):
                self.incoming.too_late(request)
            else:
                self.stream_requests.too_late(request)

    def connection_ended(self, code: int, text: str) -> None:
        """End our requests with `LOST` and stop all handlers."""
        self.outgoing.connection_ended(code, text)
        self.incoming.connection_ended()
        self.stream_requests.connection_ended()
