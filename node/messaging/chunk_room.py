"""When a Chunk may be queued on a stream of its own: once nothing waits there (section 8).

One rule: Chunks need no credit of their stream, but a Result in front of them does; so a
peer that grants none must not have them pile up behind it. Knows nothing of the credit
that a call has, and nothing of stream 1, where what is queued is written.
"""

from node.messaging.pending import IncomingCall
from node.protocol.codes import MAIN_STREAM
from node.protocol.connection import Connection


class ChunkRoom:
    """The streams of one connection on which streamed answers wait for room."""

    __slots__ = ("_connection", "_waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[int, set[IncomingCall]] = {}

    def is_free(self, call: IncomingCall) -> bool:
        """Whether a Chunk for `call` may be queued; if not, its `on_credit` is called later.

        Raises:
            LocalProtocolError: the connection is closing.
        """
        stream = call.stream
        if stream == MAIN_STREAM or not self._connection.waiting_events(stream):
            return True
        self._connection.notify_writable(stream)
        self._waiting.setdefault(stream, set()).add(call)
        return False

    def writable(self, stream: int) -> None:
        """Nothing waits on `stream` any more, or it is over."""
        for call in self._waiting.pop(stream, ()):
            if call.on_credit is not None:
                call.on_credit()

    def forget(self, call: IncomingCall) -> None:
        """The call was answered."""
        calls = self._waiting.get(call.stream)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self._waiting[call.stream]

    def __len__(self) -> int:
        """How many streams are waited for."""
        return len(self._waiting)
