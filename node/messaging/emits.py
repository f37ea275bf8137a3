"""Named events that wait: ours for their replies, the other side's for their handlers.

One rule: replies that nobody reads are bounded; more of them end their event, and
nothing else. Knows neither the connection nor the dialect.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final

from lbm.codec import Encodable
from node.messaging.finals import FinalAnswer, named_final
from node.messaging.payloads import Payload
from node.messaging.pending import IncomingCall, OutgoingCall
from node.protocol.codes import EMIT, NAMED
from node.protocol.errors import LocalProtocolError
from node.protocol.limits import EVENT_COST

# Bytes of cost (a reply and 64) that may wait unread for one event of ours.
REPLIES_SIZE: Final = 1 << 20
# A code of our own, which cannot come from the wire: more replies waited than that.
UNREAD: Final = -3


class Reply(Payload):
    """A reply to an event of ours. `name` and `namespace` are what it was called, each empty
    if there was none; `last` says that the handler is done."""

    __slots__ = ("last", "name", "namespace")

    def __init__(
        self,
        raw: bytes | None,
        format_id: int | None,
        data: Encodable = None,
        name: str = "",
        last: bool = False,
        namespace: str = "",
    ) -> None:
        super().__init__(raw, format_id, data)
        self.name = name
        self.namespace = namespace
        self.last = last

    def __repr__(self) -> str:
        return f"<Reply {self.name!r}{', the last' if self.last else ''}>"


class OutgoingEmit(OutgoingCall):
    """An event of ours whose replies are wanted. `on_done` is called for each reply as well;
    its final answer's `data` is the last reply, or None. `limit` is what may wait unread."""

    category: ClassVar[int] = NAMED
    __slots__ = ("limit", "replies", "size")

    def __init__(self, on_done: Callable[[], None], limit: int = REPLIES_SIZE) -> None:
        super().__init__(on_done)
        self.limit = limit
        self.replies: deque[tuple[Any, int]] = deque()
        self.size = 0

    def put(self, reply: Any, size: int) -> bool:
        """A reply of `size` bytes came; False if too many wait already."""
        self.size += size + EVENT_COST
        if self.size > self.limit:
            return False
        self.replies.append((reply, size))
        self.on_done()
        return True

    def take(self) -> Any:
        """The next reply; raises IndexError if there is none."""
        reply, size = self.replies.popleft()
        self.size -= size + EVENT_COST
        return reply

    def drop_replies(self) -> None:
        """Nobody reads what waits."""
        self.replies.clear()
        self.size = 0


def check_names(name: object, namespace: object) -> None:
    """What an event and its namespace are called is text.

    Raises:
        LocalProtocolError: it is not; what has no namespace has the empty one.
    """
    if not isinstance(name, str):
        raise LocalProtocolError(f"the name of an event is text, not {type(name).__name__}")
    if not isinstance(namespace, str):
        kind = type(namespace).__name__
        raise LocalProtocolError(f"a namespace is text, not {kind}; without one leave it empty")


class IncomingEmit(IncomingCall):
    """An event that came, for its handler; `topic` is its name."""

    __slots__ = ("namespace", "payload")

    def __init__(
        self,
        name: str,
        namespace: str,
        payload: Payload,
        stream: int,
        async_id: int,
        size: int,
        cost: int,
    ) -> None:
        super().__init__(EMIT, name, None, {}, stream, async_id, size, cost)
        self.namespace = namespace
        self.payload = payload

    def final(self, code: int, data: Any = None, stream: int = 0) -> FinalAnswer:
        """Its End or Error; raises LbmEncodeError or FormatError for data without a form."""
        return named_final(code, data)
