"""When a Chunk may be queued on a stream of its own: once nothing waits there (section 8).

Chunks need no credit of their stream, but a Result in front of them does; so they must not
pile up behind it where a peer grants none. Stream 1 is different: what is queued there is
written.
"""

from parley._node.messaging.pending import IncomingCall
from parley._node.protocol.codes import MAIN_STREAM
from parley._node.protocol.connection import Connection


class ChunkRoom:
    """The streams of one connection on which streamed answers wait for room, in `waiting`."""

    __slots__ = ("_connection", "waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.waiting: dict[int, set[IncomingCall]] = {}

    def is_free(self, call: IncomingCall) -> bool:
        """Whether a Chunk for `call` may be queued; if not, its `on_credit` is called later.

        Raises:
            LocalProtocolError: the connection is closing.
        """
        stream = call.stream
        if stream == MAIN_STREAM or not self._connection.outbox.waiting(stream):
            return True
        self._connection.notify_writable(stream)
        self.waiting.setdefault(stream, set()).add(call)
        return False

    def writable(self, stream: int) -> None:
        """Nothing waits on `stream` any more, or it is over."""
        for call in self.waiting.pop(stream, ()):
            if call.on_credit is not None:
                call.on_credit()

    def forget(self, call: IncomingCall) -> None:
        """The call was answered."""
        calls = self.waiting.get(call.stream)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self.waiting[call.stream]

    def __len__(self) -> int:
        """How many streams are waited for."""
        return len(self.waiting)
