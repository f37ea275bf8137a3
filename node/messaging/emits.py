"""Named events that wait: ours for their replies, the other side's for their handlers.

Replies that nobody reads are bounded; more of them end their event, and
nothing else.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final

from parley._lbm.codec import Encodable
from parley._node.messaging.finals import FinalAnswer, named_final
from parley._node.messaging.payloads import Payload
from parley._node.messaging.pending import IncomingCall, OutgoingCall
from parley._node.protocol.codes import EMIT, NAMED
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import REPLY_WEIGHT, MemoryBudget

# What may wait unread for one event of ours: bytes of cost (a reply and 64), and of memory.
REPLIES_SIZE: Final = 1 << 20
REPLIES_MEMORY: Final = 4 << 20
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
    its final answer's `data` is the last reply, or None. What waits unread is charged to
    `account`; of its cost on the wire (a reply and 64) at most `REPLIES_SIZE` waits."""

    category: ClassVar[int] = NAMED
    __slots__ = ("_costs", "account", "cost", "replies")

    def __init__(self, on_done: Callable[[], None]) -> None:
        super().__init__(on_done)
        self.account = MemoryBudget(REPLIES_MEMORY)
        self.replies: deque[tuple[Any, int]] = deque()
        self.cost = 0
        self._costs: deque[int] = deque()

    def __del__(self) -> None:
        self.drop_replies()  # whoever left without a word

    def put(self, reply: Any, weight: int, size: int = 0) -> bool:
        """A reply of so many bytes of memory, and `size` on the wire, came; False if too many
        wait already."""
        weight, cost = weight + REPLY_WEIGHT, size + EVENT_COST
        if self.cost + cost > REPLIES_SIZE or not self.account.has_room(weight):
            return False
        self.cost += cost
        self._costs.append(cost)
        self.account.charge(weight)
        self.replies.append((reply, weight))
        self.on_done()
        return True

    def take(self) -> Any:
        """The next reply; raises IndexError if none waits."""
        reply, weight = self.replies.popleft()
        self.account.release(weight)
        self.cost -= self._costs.popleft()
        return reply

    def drop_replies(self) -> None:
        """Nobody reads what waits."""
        while self.replies:
            self.take()


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
        weight: int,
        cost: int,
        entry: Any = None,
    ) -> None:
        super().__init__(EMIT, name, None, {}, stream, async_id, weight, cost, entry)
        self.namespace = namespace
        self.payload = payload

    def final(self, code: int, data: Any = None, stream: int = 0) -> FinalAnswer:
        """Its End or Error; raises LbmEncodeError or FormatError for data without a form."""
        return named_final(code, data)
