"""The results of calls with `once`, by node ID and key, with a hash of each request (section 18).

Results are kept for ten minutes, then forgotten. While the memory is exhausted, new calls cannot
begin. This module does not run handlers.
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

# The entry in the node information of a node that supports `once`, and the size of its value.
ONCE_INFO: Final = "once"
ONCE_EPOCH_SIZE: Final = 8

# Memory per entry in CPython, in bytes, in addition to payloads.
ONCE_WEIGHT: Final = 640  # A remembered call.
ONCE_ID_WEIGHT: Final = 1_024  # A node ID with remembered calls.

# One node ID can use 1/8 of the memory that the other node IDs have left.
ONCE_PART: Final = 8

# Codes with which a handler reports that it did nothing, so the result is not remembered. Codes
# from 64 on belong to the application.
NOT_REMEMBERED: Final = range(ResultCode.OVERLOADED, 64)

Wake = Callable[[], None]
# Used instead of a new set for each answered call.
_NOBODY: Final[set[Wake]] = set()


def fingerprint(topic: str, data: Encodable) -> bytes:
    """Return a hash of a call's topic and data."""
    name = topic.encode()
    return SHA256.digest(len(name).to_bytes(8, "big") + name + encode_value(data))


class IdempotentCall:
    """A call whose handler is running, or whose `answer` and `code` are known.

    `callers` counts the requests that wait for it. The code that runs the handler uses `begun`,
    `runner` and `timer`; `ended` means that the handler has ended.
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
        self.weight = weight  # The size of its request, charged until the handler has ended.
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
    """The remembered calls of one node ID; `line` contains the callers that wait for capacity."""

    __slots__ = ("account", "calls", "line", "node_id", "running")

    def __init__(self, node_id: NodeId, account: MemoryBudget) -> None:
        self.node_id = node_id
        self.account = account
        self.calls: dict[bytes, IdempotentCall] = {}
        self.running = 0
        self.line: dict[Wake, None] = {}


class IdempotencyCache:
    """The remembered calls of all node IDs.

    `epoch` is 8 random bytes that identify this run of the node. `on_ended` is called when a
    handler ends. `results` limits the calls per node ID. `peer_memory` limits the memory of one
    node ID and `memory` that of all, in bytes; both are part of `total`.

    Beyond its first call, a node ID can use at most an eighth of the `memory` that the others have
    left, so that a few node IDs can't use all of it.
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
        self.running = 0  # The number of running handlers.
        self._on_ended = on_ended
        self._results = results
        self._peer_memory = peer_memory
        self.total = MemoryBudget(memory, total)
        self.askers: dict[NodeId, _Asker] = {}
        self._answered: deque[IdempotentCall] = deque()  # The oldest first.

    def begin_epoch(self, epoch: bytes) -> None:
        """Set the epoch of a new run of the node."""
        self.epoch = epoch

    def change_limits(self, results: int, peer_memory: int, memory: int) -> None:
        """Change the limits; existing results are kept."""
        self._results, self._peer_memory, self.total.limit = results, peer_memory, memory
        for asker in self.askers.values():
            asker.account.limit = peer_memory

    def __len__(self) -> int:
        return sum(len(asker.calls) for asker in self.askers.values())

    @property
    def held(self) -> int:
        """The memory in use, in bytes."""
        return self.total.held

    def find(
        self, who: NodeId, key: bytes, question: bytes, now: float
    ) -> IdempotentCall | ResultCode | None:
        """Return the call of this key, None if it is unknown, or code 23 if the request differs."""
        self._forget_old(now)
        asker = self.askers.get(who)
        call = None if asker is None else asker.calls.get(key)
        if call is not None and call.question != question:
            return ResultCode.MALFORMED
        return call

    def begin(self, who: NodeId, key: bytes, question: bytes, weight: int) -> IdempotentCall | None:
        """Register a new call whose request takes `weight` bytes; `answer` and `end` must follow.

        Returns None if there is not enough memory for it and the longest Result.
        """
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
        """Store the Result of a call, unless it has one.

        If the code means that the handler did nothing, the call is forgotten instead.
        """
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
        """Record that the handler has ended; without an answer, it was stopped with its node."""
        if call.ended:
            return
        call.ended = True
        call.runner = call.timer = None  # They refer to the session.
        self.answer(call, ResultCode.OVERLOADED, encode_result(ResultCode.OVERLOADED), 0.0)
        asker = call.asker
        asker.account.release(call.weight)
        asker.running -= 1
        self.running -= 1
        self._leave(asker)
        self.next_in_line(asker.node_id)
        self._on_ended()

    def clear(self) -> None:
        """Forget all results. No handler may be running."""
        for asker in self.askers.values():
            asker.account.release(asker.account.held)
        self.askers.clear()
        self._answered.clear()

    # Callers that wait for capacity.

    def may_wait(self, who: NodeId) -> bool:
        """Whether another call of this node ID could begin when one of its handlers ends."""
        asker = self.askers.get(who)
        return asker is not None and asker.running > 0 and len(asker.calls) < self._results

    def queue(self, who: NodeId, wake: Wake) -> None:
        """Call `wake` when there may be capacity; call `leave_line` if it was not used."""
        self.askers[who].line[wake] = None

    def leave_line(self, who: NodeId, wake: Wake) -> None:
        """Remove a waiting caller; wake the next one if it had already been woken."""
        asker = self.askers.get(who)
        if asker is not None and wake in asker.line:
            del asker.line[wake]
        else:
            self.next_in_line(who)

    def next_in_line(self, who: NodeId) -> None:
        """Wake the next waiting caller of this node ID."""
        asker = self.askers.get(who)
        if asker is not None and asker.line:
            wake = next(iter(asker.line))
            del asker.line[wake]
            wake()

    def _may_grow(self, account: MemoryBudget, size: int) -> bool:
        """Whether a node ID with remembered calls can use `size` more bytes."""
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
        """Remove a node ID without remembered calls and running handlers."""
        if not asker.calls and not asker.running and self.askers.get(asker.node_id) is asker:
            del self.askers[asker.node_id]
            asker.account.release(ONCE_ID_WEIGHT)
            for wake in asker.line:
                wake()
