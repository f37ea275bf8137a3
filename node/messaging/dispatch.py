"""Where an event of the application goes: requests, topics, a stream's reader, or nowhere.

One rule: an event that nobody takes is dropped and counted, and a request of the base
protocol among them is answered all the same (docs/protocol.md section 2). Knows the
types of events, not what handlers do.
"""

from collections.abc import Callable

from lbm import keys
from lbm.cells import read_text
from lbm.codec import decode, encode
from lbm.errors import LbmDecodeError
from node.messaging.answering import Answering
from node.messaging.asking import Asking
from node.messaging.stream_requests import StreamRequests
from node.messaging.topics import Topics
from node.protocol.codes import (
    CALL,
    CANCEL,
    CHUNK,
    DATA,
    EMIT,
    END,
    ERROR,
    FIRST_APPLICATION_CATEGORY,
    MAIN_STREAM,
    NAMED,
    NOTES,
    NOTIFY,
    RESULT,
    SIM,
    STREAM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ResultCode,
)
from node.protocol.connection import Connection
from node.protocol.errors import LocalProtocolError
from node.protocol.reports import EventReceived

# Takes an event; returns whether its cost is kept until it is used.
Take = Callable[[EventReceived, float], bool]


class Dispatch:
    """Sends each event of one connection on its way. `on_stream` takes 2/5 Data, and the
    application's events on streams from 2 up, among which `requests` are."""

    __slots__ = ("_answering", "_connection", "_on_stream", "_requests", "_sim", "dropped")

    def __init__(
        self,
        connection: Connection,
        asking: Asking,
        answering: Answering,
        topics: Topics,
        on_stream: Callable[[EventReceived], bool],
        requests: StreamRequests,
    ) -> None:
        self._connection = connection
        self._answering = answering
        self._on_stream = on_stream
        self._requests = requests
        self._sim: dict[int, Take] = {
            CALL: answering.request_received,
            SUBSCRIBE: answering.request_received,
            UNSUBSCRIBE: topics.unsubscribe_received,
            NOTIFY: topics.notes_received,
            RESULT: asking.result_received,
            CANCEL: answering.cancel_received,
            CHUNK: asking.chunk_received,
            NOTES: topics.notes_received,
        }
        self.dropped = 0

    def receive(self, event: EventReceived, now: float) -> None:
        """Deliver one event; what it cost is given back unless a reader keeps it.

        Raises:
            RemoteProtocolError: an async id is used twice, or answers pile up.
        """
        stream, async_id, category, subcategory, payload, cost = event
        if category >= FIRST_APPLICATION_CATEGORY:
            if stream > MAIN_STREAM and self._on_stream(event):
                return
            self.dropped += 1
        elif (
            stream > MAIN_STREAM
            and (async_id or subcategory == CANCEL)
            and self._requests.claims(event)
        ):
            pass  # a Cancel of an application's request, which goes no further
        elif category == SIM:
            take = self._sim.get(subcategory)
            if take is None:
                self.dropped += 1
            elif take(event, now):
                return
        elif category == STREAM and subcategory == DATA:
            if self._on_stream(event):
                return
            self.dropped += 1
        else:
            self.dropped += 1
            if category == NAMED and subcategory == EMIT and async_id:
                self._without_handler(stream, async_id, payload)
        if cost:
            self._connection.consume(stream, cost)

    def _without_handler(self, stream: int, async_id: int, payload: bytes) -> None:
        """Emit: its one answer is an empty End, or an Error if it is malformed."""
        self._answering.require_free(stream, async_id)
        try:
            cells = decode(payload)
            read_text(cells, keys.NAME)
            read_text(cells, keys.NAMESPACE, default="")
            answer, text = END, encode({})
        except LbmDecodeError:
            code = ResultCode.MALFORMED
            answer, text = ERROR, encode({keys.CODE: code, keys.TEXT: "malformed request"})
        try:
            self._connection.send(stream, async_id, NAMED, answer, text)
        except LocalProtocolError:
            return  # the connection is closing
