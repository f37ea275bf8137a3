"""Delivers received events to requests, topics, named events or stream readers.

Events without a receiver are dropped and counted; a request of the base protocol is answered even
then (docs/protocol.md section 2).
"""

from collections.abc import Callable, Container

from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import Topics
from parley._node.protocol.codes import (
    ACCOUNT,
    ACCOUNT_ANSWER,
    CALL,
    CANCEL,
    CHUNK,
    DATA,
    EMIT,
    END,
    ERROR,
    LOGIN,
    LOGOUT,
    MAIN_STREAM,
    NAMED,
    NOTES,
    NOTIFY,
    REPLY_EVENT,
    RESULT,
    SIM,
    STREAM,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import Event


class Dispatch:
    """Delivers the events of one connection.

    `on_stream` receives Data (2/5) and, on streams from 2 up, events of category 6 and above,
    including requests. It receives all events on the streams in `restricted`, which don't carry
    calls, topics or named events.
    """

    __slots__ = (
        "_calls",
        "_connection",
        "_incoming",
        "_on_stream",
        "_outgoing",
        "_requests",
        "_restricted",
        "_topics",
    )

    def __init__(
        self,
        connection: Connection,
        calls: RequestMux,
        topics: Topics,
        on_stream: Callable[[Event], bool],
        restricted: Container[int] = (),
    ) -> None:
        self._connection = connection
        self._calls = calls
        self._incoming = calls.incoming
        self._outgoing = calls.outgoing
        self._requests = calls.stream_requests
        self._topics = topics
        self._on_stream = on_stream
        self._restricted = restricted

    def receive(self, event: Event, now: float) -> None:
        """Deliver one event; return its credit unless a reader keeps it.

        Raises:
            RemoteProtocolError: a request ID is used twice, or too many unread answers accumulate.
        """
        stream, category, subcategory = event.stream, event.category, event.subcategory
        if category > ACCOUNT or (stream > MAIN_STREAM and stream in self._restricted):
            if stream > MAIN_STREAM and self._on_stream(event):
                return
            self._connection.count_dropped()
        elif (
            stream > MAIN_STREAM
            and (event.async_id or subcategory == CANCEL)
            and self._requests.claims(event)
        ):
            pass  # A Cancel of an application's request needs no further processing.
        elif category == SIM:
            if self._sim_received(subcategory, event, now):
                return
        elif category == STREAM and subcategory == DATA:
            if self._on_stream(event):
                return
            self._connection.count_dropped()
        elif category == NAMED:
            if self._named_received(subcategory, event, now):
                return
        elif category == ACCOUNT:
            self._account_received(subcategory, event, now)
        else:
            self._connection.count_dropped()
        if event.cost:
            self._connection.consume(stream, event.cost)

    # These return whether the event's cost stays charged until later. A table of bound methods
    # would take more memory than the rest of an idle connection's tables.

    def _sim_received(self, subcategory: int, event: Event, now: float) -> bool:
        if subcategory in (CALL, SUBSCRIBE):
            return self._incoming.request_received(event, now)
        if subcategory == RESULT:
            return self._outgoing.result_received(event, now)
        if subcategory in (NOTES, NOTIFY):
            return self._topics.notes_received(event, now)
        if subcategory == CHUNK:
            return self._outgoing.chunk_received(event, now)
        if subcategory == CANCEL:
            return self._incoming.cancel_received(event, now)
        if subcategory == UNSUBSCRIBE:
            return self._topics.unsubscribe_received(event, now)
        self._connection.count_dropped()
        return False

    def _named_received(self, subcategory: int, event: Event, now: float) -> bool:
        named = self._calls.named
        if subcategory == EMIT:
            return named.emit_received(event, now)
        if subcategory == REPLY_EVENT:
            return named.reply_received(event, now)
        if subcategory == ERROR:
            return named.error_received(event, now)
        if subcategory == END:
            return named.end_received(event, now)
        self._connection.count_dropped()
        return False

    def _account_received(self, subcategory: int, event: Event, now: float) -> None:
        logins = self._calls.logins
        if subcategory == LOGIN:
            logins.login_received(event, now)
        elif subcategory == LOGOUT:
            logins.logout_received(event, now)
        elif subcategory == ACCOUNT_ANSWER:
            logins.answer_received(event, now)
        else:
            self._connection.count_dropped()
