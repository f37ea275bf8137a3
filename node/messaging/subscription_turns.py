"""Subscribe and Unsubscribe of one peer: for each topic one at a time, in the order they came.

A Subscribe may take its time to be decided. What the same peer asks about the same topic
meanwhile waits for it, so that the last word of the peer is the one that holds
(docs/protocol.md appendix C, point 40). What waits is unanswered, and bounded as such.
"""

from collections.abc import Callable

from parley._node.messaging.pending import IncomingCall

# Is called with a request whose turn has come.
Begin = Callable[[IncomingCall], None]


class SubscriptionTurns:
    """The unanswered requests about each topic; the first of them is the one being decided.

    `end` is to be called with each request that was taken, once it is answered, also from
    within what begins it.
    """

    __slots__ = ("_beginning", "requests")

    def __init__(self) -> None:
        self._beginning: set[str] = set()
        self.requests: dict[str, dict[IncomingCall, Begin]] = {}

    def is_free(self, topic: str) -> bool:
        """Whether a request about this topic would begin at once."""
        return topic not in self.requests

    def take(self, request: IncomingCall, begin: Begin) -> None:
        """Begin a request, or let it wait for its turn."""
        requests = self.requests.get(request.topic)
        if requests is not None:
            requests[request] = begin
            return
        self.requests[request.topic] = {request: begin}
        self._advance(request.topic)

    def end(self, request: IncomingCall) -> None:
        """A request was answered, in its turn or while it waited."""
        requests = self.requests.get(request.topic)
        if requests is None:
            return
        had_its_turn = request is next(iter(requests))
        del requests[request]
        if had_its_turn and request.topic not in self._beginning:
            self._advance(request.topic)

    def clear(self) -> None:
        """The connection is over: nothing that waits will begin."""
        self.requests.clear()

    def _advance(self, topic: str) -> None:
        # A loop, since a peer can have a thousand wait that are answered as soon as they begin.
        requests = self.requests[topic]
        self._beginning.add(topic)
        while requests:
            request, begin = next(iter(requests.items()))
            begin(request)
            if request in requests:
                break
        self._beginning.discard(topic)
        if not requests:
            self.requests.pop(topic, None)
