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

# Processes an event; returns whether its cost stays charged until later.
Take = Callable[[Event, float], bool]


class Dispatch:
    """Delivers the events of one connection.

    `on_stream` receives Data (2/5) and, on streams from 2 up, events of category 6 and above,
    including requests. It receives all events on the streams in `restricted`, which don't carry
    calls, topics or named events.
    """

    __slots__ = (
        "_account",
        "_connection",
        "_named",
        "_on_stream",
        "_requests",
        "_restricted",
        "sim",
    )

    def __init__(
        self,
        connection: Connection,
        calls: RequestMux,
        topics: Topics,
        on_stream: Callable[[Event], bool],
        restricted: Container[int] = (),
    ) -> None:
        outgoing, incoming, named = calls.outgoing, calls.incoming, calls.named
        logins = calls.logins
        self._connection = connection
        self._on_stream = on_stream
        self._restricted = restricted
        self._requests = calls.stream_requests
        self.sim: dict[int, Take] = {
            CALL: incoming.request_received,
            SUBSCRIBE: incoming.request_received,
            UNSUBSCRIBE: topics.unsubscribe_received,
            NOTIFY: topics.notes_received,
            RESULT: outgoing.result_received,
            CANCEL: incoming.cancel_received,
            CHUNK: outgoing.chunk_received,
            NOTES: topics.notes_received,
        }
        self._named: dict[int, Take] = {
            EMIT: named.emit_received,
            REPLY_EVENT: named.reply_received,
            ERROR: named.error_received,
            END: named.end_received,
        }
        self._account: dict[int, Take] = {
            LOGIN: logins.login_received,
            LOGOUT: logins.logout_received,
            ACCOUNT_ANSWER: logins.answer_received,
        }

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
            take = self.sim.get(subcategory)
            if take is None:
                self._connection.count_dropped()
            elif take(event, now):
                return
        elif category == STREAM and subcategory == DATA:
            if self._on_stream(event):
                return
            self._connection.count_dropped()
        elif category == NAMED:
            take = self._named.get(subcategory)
            if take is None:
                self._connection.count_dropped()
            elif take(event, now):
                return
        elif category == ACCOUNT and subcategory in self._account:
            self._account[subcategory](event, now)
        else:
            self._connection.count_dropped()
        if event.cost:
            self._connection.consume(stream, event.cost)
