"""All requests of one connection, in both directions (section 9)."""

from collections.abc import Sequence
from typing import Any, Protocol

from parley._node.messaging.application_events import StreamRequests
from parley._node.messaging.deadline_queue import DeadlineQueue
from parley._node.messaging.incoming_calls import CallRunner, IncomingCall, IncomingCalls
from parley._node.messaging.logins import Logins
from parley._node.messaging.named_events import EventRunner, NamedEvents
from parley._node.messaging.outgoing_calls import OutgoingCall, OutgoingCalls
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import UNANSWERED_REQUESTS


class RequestRunner(CallRunner, EventRunner, Protocol):
    """Finds and runs the handlers of all requests."""

    def login(self, exports: Sequence[str] | None) -> ResultCode:
        """Decide on a Login with these exports, or (None) a Logout."""


class RequestMux:
    """Creates the tables of requests, which share request IDs and `deadlines`."""

    __slots__ = ("deadlines", "incoming", "logins", "named", "outgoing", "stream_requests")

    def __init__(
        self,
        connection: Connection,
        runner: RequestRunner,
        *,
        count_limit: int = UNANSWERED_REQUESTS,
    ) -> None:
        self.deadlines: DeadlineQueue[Any] = DeadlineQueue()
        self.outgoing = OutgoingCalls(connection, self.deadlines)
        self.incoming = IncomingCalls(connection, self.deadlines, runner, count_limit=count_limit)
        self.stream_requests = StreamRequests(
            connection, self.deadlines, self.incoming.require_free, count_limit=count_limit
        )
        self.named = NamedEvents(connection, self.outgoing, self.incoming, runner)
        self.logins = Logins(connection, self.outgoing, self.incoming, runner.login)

    def expire_calls(self, now: float) -> None:
        """End all requests whose deadline has passed."""
        for request in self.deadlines.pop_due(now):
            if isinstance(request, OutgoingCall):
                self.outgoing.expire(request)
            elif isinstance(request, IncomingCall):
                self.incoming.expire(request)
            else:
                self.stream_requests.expire(request)

    def connection_ended(self, code: int, text: str) -> None:
        """End outgoing requests with `LOST` and stop all handlers."""
        self.outgoing.connection_ended(code, text)
        self.incoming.connection_ended()
        self.stream_requests.connection_ended()
