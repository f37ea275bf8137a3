"""The Chunks of a streamed answer, as the asking side takes them (section 8).

What waits to be read never exceeds the window by more than one Chunk, and
credit is given back only for what was read.
"""

from collections import deque
from collections.abc import Callable

from parley._lbm import keys
from parley._lbm.codec import Value
from parley._node.protocol import event_types
from parley._node.protocol.flow_control import ReceiveWindow
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import REPLY_WEIGHT, MemoryBudget


class ChunkInbox:
    """Chunks that came and were not read. `size` is the window, in bytes of cost.

    `on_chunk` is called for each that comes, `grant` with credit for the other side. What
    waits is charged to `account`.
    """

    __slots__ = ("_account", "_grant", "_on_chunk", "_waiting", "_window")

    def __init__(
        self,
        size: int,
        on_chunk: Callable[[], None],
        grant: Callable[[int], None],
        account: MemoryBudget,
    ) -> None:
        self._account = account
        self._window = ReceiveWindow(size)
        self._waiting: deque[bytes] = deque()
        self._on_chunk = on_chunk
        self._grant = grant

    def __len__(self) -> int:
        return len(self._waiting)

    def __del__(self) -> None:
        self.clear()  # whoever left without a word

    def put(self, payload: bytes) -> bool:
        """A Chunk came; False if there is no room for it.

        Raises:
            RemoteProtocolError: `protocol-error`, it came at no credit.
        """
        self.drop(payload)
        if not self._account.has_room(len(payload) + REPLY_WEIGHT):
            return False
        self._account.charge(len(payload) + REPLY_WEIGHT)
        self._waiting.append(payload)
        self._on_chunk()
        return True

    def drop(self, payload: bytes) -> None:
        """Use up the credit of a Chunk that is not kept; raises as `put`."""
        self._window.take(len(payload) + EVENT_COST)

    def clear(self) -> None:
        """Nobody reads any more."""
        while self._waiting:
            self._account.release(len(self._waiting.popleft()) + REPLY_WEIGHT)

    def take(self) -> Value:
        """The item of the next Chunk.

        Raises:
            LbmDecodeError: it is malformed. IndexError: nothing waits.
        """
        payload = self._waiting.popleft()
        self._account.release(len(payload) + REPLY_WEIGHT)
        credit = self._window.consume(len(payload) + EVENT_COST, whole=True)
        if credit:
            self._grant(credit)
        item: Value = event_types.CHUNK.read(payload).get(keys.DATA)
        return item
