"""Where an event of the application goes: calls, a stream's reader, or nowhere.

One rule: an event that nobody takes is dropped and counted, and a request of the base
protocol among them is answered all the same (docs/protocol.md section 2). Knows the
types of events, not what handlers do.
"""

from collections.abc import Callable

from lbm import keys
from lbm.cells import REQUIRED, read_text
from lbm.codec import decode, encode
from lbm.errors import LbmDecodeError
from node.messaging.calls import Calls
from node.protocol.codes import (
    DATA,
    EMIT,
    END,
    ERROR,
    NAMED,
    NOTIFY,
    SIM,
    STREAM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ResultCode,
)
from node.protocol.connection import Connection
from node.protocol.errors import LocalProtocolError
from node.protocol.reports import EventReceived

# What a node without topics says to the requests of topics.
_NO_TOPICS = {
    SUBSCRIBE: ResultCode.TOPIC_NOT_FOUND,
    UNSUBSCRIBE: ResultCode.TOPIC_NOT_FOUND,
    NOTIFY: ResultCode.NOT_SUBSCRIBED,
}


class Dispatch:
    """Sends each event of one connection on its way. `on_data` takes 2/5 Data."""

    __slots__ = ("_calls", "_connection", "_on_data", "dropped")

    def __init__(
        self, connection: Connection, calls: Calls, on_data: Callable[[EventReceived], bool]
    ) -> None:
        self._connection = connection
        self._calls = calls
        self._on_data = on_data
        self.dropped = 0

    def receive(self, event: EventReceived, now: float) -> None:
        """Deliver one event; what it cost is given back unless a reader keeps it.

        Raises:
            RemoteProtocolError: as `Calls.receive`.
        """
        stream, async_id, category, subcategory, payload, cost = event
        if category == STREAM and subcategory == DATA:
            if self._on_data(event):
                return
            self.dropped += 1
        elif category == SIM:
            if self._calls.receive(event, now):
                return
            self._without_topics(stream, async_id, subcategory, payload)
        else:
            self.dropped += 1
            if category == NAMED and subcategory == EMIT and async_id:
                self._without_handler(stream, async_id, payload)
        if cost:
            self._connection.consume(stream, cost)

    def _without_topics(self, stream: int, async_id: int, subcategory: int, payload: bytes) -> None:
        code = _NO_TOPICS.get(subcategory)
        if code is None:
            self.dropped += 1
            return
        try:
            # Where Notify's topic is implied there is a subscription, and here is none.
            default = REQUIRED if subcategory != NOTIFY else ""
            read_text(decode(payload), keys.TOPIC, default=default)
        except LbmDecodeError:
            code = ResultCode.MALFORMED
        self._calls.refuse(stream, async_id, code)

    def _without_handler(self, stream: int, async_id: int, payload: bytes) -> None:
        """Emit: its one answer is an empty End, or an Error if it is malformed."""
        self._calls.require_free(stream, async_id)
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
