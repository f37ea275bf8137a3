"""What a node remembers of the calls that are made once: by node id and key, what was asked and its
Result (section 18).

Nothing that was answered in the last ten minutes is thrown away, so where there is no room nothing
new begins. What is older is forgotten. Runs nothing.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from parley._crypto.hashing import SHA256
from parley._crypto.identity import NodeId
from parley._lbm.codec import Encodable, encode_value
from parley._node.messaging.call_codec import FinalAnswer, encode_result
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import ONCE_KEPT, ONCE_RESULT
from parley._node.protocol.memory_budget import MemoryBudget

# The entry in the node information of a node that remembers, and its size.
ONCE_INFO: Final = "once"
ONCE_EPOCH_SIZE: Final = 8

# What they take in memory besides payloads, in bytes of CPython.
ONCE_WEIGHT: Final = 640  # a call that is remembered
ONCE_ID_WEIGHT: Final = 1_024  # a node id of which there are any

# The part of what others have left of the memory of all that one node id gets.
ONCE_PART: Final = 8

# By these codes a handler says that it did nothing; all others are its answer. Those from 64 on
# are the application's.
NOT_REMEMBERED: Final = range(ResultCode.OVERLOADED, 64)

Wake = Callable[[], None]
# In place of a set for each call that is answered.
_NOBODY: Final[set[Wake]] = set()


def fingerprint(topic: str, data: Encodable) -> bytes:
    """What a call asks: a hash of its topic and its data."""
    name = topic.encode()
    return SHA256.digest(len(name).to_bytes(8, "big") + name + encode_value(data))


class IdempotentCall:
    """A call that was begun: its handler runs, or its `answer` (with that `code`) is known.

    `callers` is how many Calls wait for it. `begun`, `runner` and `timer` are for whoever runs
    the handler; `ended` says that the handler is over.
    """

    __slots__ = (
        "answer",
        "answered_at",
        "asker",
        "begun",
        "callers",
        "code",
        "ended",
        "key",
        "question",
        "runner",
        "timer",
        "waiting",
        "weight",
    )

    def __init__(self, asker: "_Asker", key: bytes, question: bytes, weight: int) -> None:
        self.asker = asker
        self.key = key
        self.question = question
        self.weight = weight  # of what its handler was given, until that is over
        self.answer: FinalAnswer | None = None
        self.answered_at = 0.0
        self.code = 0
        self.begun = False
        self.ended = False
        self.callers = 0
        self.waiting: set[Wake] = set()
        self.runner: Any = None
        self.timer: Any = None


class _Asker:
    """What is remembered of one node id; `line` are those that wait for room."""

    __slots__ = ("account", "calls", "line", "node_id", "running")

    def __init__(self, node_id: NodeId, account: MemoryBudget) -> None:
        self.node_id = node_id
        self.account = account
        self.calls: dict[bytes, IdempotentCall] = {}
        self.running = 0
        self.line: dict[Wake, None] = {}


class IdempotencyCache:
    """The calls of all node ids that are remembered. `epoch` are 8 random bytes that tell it from
    that of another run of the node. `on_ended` is called when a handler is over.

    `results` is how many of one node id there may be, `peer_memory` what those may take and
    `memory` what all of them may, in bytes; `total` is an account that this is a part of. Beyond
    its first call, a node id gets at most an eighth of what the others have left of `memory`, so
    that a few of them can't use it up.
    """

    def __init__(
        self,
        epoch: bytes,
        *,
        results: int,
        peer_memory: int,
        memory: int,
        total: MemoryBudget | None = None,
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.epoch = epoch
        self.running = 0  # handlers
        self._on_ended = on_ended
        self._results = results
        self._peer_memory = peer_memory
        self.total = MemoryBudget(memory, total)
        self.askers: dict[NodeId, _Asker] = {}
        self._answered: deque[IdempotentCall] = deque()  # the oldest first

    def begin_epoch(self, epoch: bytes) -> None:
        """The node runs once more."""
        self.epoch = epoch

    def change_limits(self, results: int, peer_memory: int, memory: int) -> None:
        """Have these from now on; what is remembered already stays."""
        self._results, self._peer_memory, self.total.limit = results, peer_memory, memory
        for asker in self.askers.values():
            asker.account.limit = peer_memory

    def __len__(self) -> int:
        return sum(len(asker.calls) for asker in self.askers.values())

    @property
    def held(self) -> int:
        """Bytes of memory that are held."""
        return self.total.held

    def find(
        self, who: NodeId, key: bytes, question: bytes, now: float
    ) -> IdempotentCall | ResultCode | None:
        """The call of this key, None if it is unknown; code 23 if it was another one."""
        self._forget_old(now)
        asker = self.askers.get(who)
        call = None if asker is None else asker.calls.get(key)
        if call is not None and call.question != question:
            return ResultCode.MALFORMED
        return call

    def begin(self, who: NodeId, key: bytes, question: bytes, weight: int) -> IdempotentCall | None:
        """A new call, whose request takes `weight` bytes; None if there is no room for it and the
        longest Result. To be followed by `answer` and `end`."""
        asker = self.askers.get(who)
        if asker is None:
            account = MemoryBudget(self._peer_memory, self.total)
            if not account.has_room(ONCE_ID_WEIGHT + ONCE_WEIGHT + weight + ONCE_RESULT):
                return None
            account.charge(ONCE_ID_WEIGHT)
            asker = self.askers[who] = _Asker(who, account)
        elif len(asker.calls) >= self._results or not self._may_grow(
            asker.account, ONCE_WEIGHT + weight + ONCE_RESULT
        ):
            return None
        call = asker.calls[key] = IdempotentCall(asker, key, question, weight)
        asker.account.charge(ONCE_WEIGHT + weight + ONCE_RESULT)
        asker.running += 1
        self.running += 1
        return call

    def answer(self, call: IdempotentCall, code: int, answer: FinalAnswer, now: float) -> None:
        """The Result of a call is known; later ones change nothing. With a code by which nothing
        was done it is forgotten again."""
        if call.answer is not None:
            return
        call.answer, call.code = answer, code
        asker = call.asker
        asker.account.release(ONCE_RESULT)
        if code in NOT_REMEMBERED:
            self._forget(call)
        else:
            call.answered_at = now
            asker.account.charge(len(answer[2]))
            self._answered.append(call)
        waiting, call.waiting = call.waiting, _NOBODY
        for wake in waiting:
            wake()
        self.next_in_line(asker.node_id)

    def end(self, call: IdempotentCall) -> None:
        """Its handler is over. One without an answer was stopped with its node."""
        if call.ended:
            return
        call.ended = True
        call.runner = call.timer = None  # they know the session
        self.answer(call, ResultCode.OVERLOADED, encode_result(ResultCode.OVERLOADED), 0.0)
        asker = call.asker
        asker.account.release(call.weight)
        asker.running -= 1
        self.running -= 1
        self._leave(asker)
        self.next_in_line(asker.node_id)
        self._on_ended()

    def clear(self) -> None:
        """Forget everything; no handler runs."""
        for asker in self.askers.values():
            asker.account.release(asker.account.held)
        self.askers.clear()
        self._answered.clear()

    # Those for whose call there is no room.

    def may_wait(self, who: NodeId) -> bool:
        """Whether there may be room for one more once a handler of this node id is over."""
        asker = self.askers.get(who)
        return asker is not None and asker.running > 0 and len(asker.calls) < self._results

    def queue(self, who: NodeId, wake: Wake) -> None:
        """`wake` is called when there may be room; `leave_line` when it was of no use."""
        self.askers[who].line[wake] = None

    def leave_line(self, who: NodeId, wake: Wake) -> None:
        """Whoever was to be woken waits no more; it may be the turn of the next one."""
        asker = self.askers.get(who)
        if asker is not None and wake in asker.line:
            del asker.line[wake]
        else:
            self.next_in_line(who)

    def next_in_line(self, who: NodeId) -> None:
        """There may be room for one more of this node id."""
        asker = self.askers.get(who)
        if asker is not None and asker.line:
            wake = next(iter(asker.line))
            del asker.line[wake]
            wake()

    # Inside.

    def _may_grow(self, account: MemoryBudget, size: int) -> bool:
        """Whether a node id of which something is remembered may hold `size` bytes more."""
        left = self.total.limit - (self.total.held - account.held)
        return ONCE_PART * (account.held + size) <= left and account.has_room(size)

    def _forget_old(self, now: float) -> None:
        answered = self._answered
        while answered and answered[0].answered_at <= now - ONCE_KEPT:
            call = answered.popleft()
            if call.answer is not None:
                call.asker.account.release(len(call.answer[2]))
            self._forget(call)

    def _forget(self, call: IdempotentCall) -> None:
        asker = call.asker
        del asker.calls[call.key]
        asker.account.release(ONCE_WEIGHT)
        self._leave(asker)

    def _leave(self, asker: _Asker) -> None:
        """Nothing is left of a node id of which nothing is remembered and nothing runs."""
        if not asker.calls and not asker.running and self.askers.get(asker.node_id) is asker:
            del self.askers[asker.node_id]
            asker.account.release(ONCE_ID_WEIGHT)
            for wake in asker.line:
                wake()
