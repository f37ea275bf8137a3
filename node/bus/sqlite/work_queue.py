"""The queue between the loop and the thread: operations wait in it, and come back done; and the
tasks that wait for events of a stream.

The queue is bounded; a caller that finds it full waits for room, in order, and holds up no other.
Each value is set by one thread alone, so that no operation takes a lock: appending to a list and
cutting off its head are atomic under the interpreter's lock.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from parley._node.bus.errors import BusClosedError
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Waiter

Found = TypeVar("Found")
Run: TypeAlias = Callable[..., Any]
Rescue: TypeAlias = Callable[..., None]
Undo: TypeAlias = "Callable[[Any], Operation | None] | None"


class OperationKind(NamedTuple):
    """What an operation needs. `durable`: it is on the disk when it is done. `publishes`: it adds
    events, which may use less of the file."""

    writes: bool = True
    durable: bool = False
    publishes: bool = False


LOOK: Final = OperationKind(writes=False)
MARK: Final = OperationKind()
RECORD: Final = OperationKind(durable=True)
PUBLISH: Final = OperationKind(durable=True, publishes=True)
PUBLISH_SOON: Final = OperationKind(publishes=True)


class Operation:
    """Something for the thread to do: `run` with its books. `waiter`, if any, waits for it.
    `undo` makes of its result the operation that reverses it, for a caller that is gone by then;
    `rescue` takes out `piece` events at most, to make room for a second try."""

    __slots__ = ("abandoned", "done", "error", "kind", "rescue", "result", "run", "undo", "waiter")

    def __init__(
        self,
        kind: OperationKind,
        run: Run,
        waiter: Waiter | None = None,
        undo: Undo = None,
        rescue: Rescue | None = None,
    ) -> None:
        self.kind = kind
        self.run = run
        self.waiter = waiter
        self.undo = undo
        self.rescue = rescue
        self.result: Any = None
        self.error: Exception | None = None
        self.abandoned = False  # set by the loop; the thread skips it, if it did not take it yet
        self.done = False  # set by the loop


class WorkQueue:
    """Operations on their way. The thread calls `take`, the loop everything else."""

    def __init__(self, backend: Backend, limit: int) -> None:
        self._backend = backend
        self._free = limit
        self._outside: deque[list[Any]] = deque()  # [waiter, whether it was let in]
        self._waiting: list[Operation | None] = []
        self._idle = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self.closed = False
        self.watched = False  # a task waits for what other processes do

    async def do(
        self,
        kind: OperationKind,
        run: Run,
        undo: Undo = None,
        rescue: Rescue | None = None,
    ) -> Any:
        """Have the thread run it; its result, or the error it raised."""
        if self._free <= 0 or self._outside:
            await self._enter()
        else:
            self._free -= 1
        if self.closed:
            self._leave(1)
            raise BusClosedError("the bus is closed")
        waiter = self._backend.waiter()
        operation = Operation(kind, run, waiter, undo, rescue)
        self.put(operation)
        try:
            await waiter.wait()
        except BaseException:
            operation.abandoned = True
            if operation.done:
                self._undo(operation)
            raise
        if operation.error is not None:
            raise operation.error
        return operation.result

    def put(self, operation: Operation | None) -> None:
        """Append, even without room; None is the end."""
        self._waiting.append(operation)
        if self._idle:
            self.wake()

    def close(self) -> None:
        """Take no more operations; those in the queue are still done."""
        self.closed = True
        self.put(None)

    def wake(self) -> None:
        """Have the thread look."""
        self._idle = False
        self._wakes.put(None)

    def finished(self, operations: list[Operation]) -> None:
        """They are done. Called in the loop."""
        for operation in operations:
            operation.done = True
            if operation.waiter is None:
                continue
            self._free += 1
            if operation.abandoned:
                self._undo(operation)
            else:
                operation.waiter.wake()
        if self._outside:
            self._leave(0)

    # For the thread.

    def take(self, timeout: float | None) -> list[Operation | None]:
        """All that wait; nothing after `timeout` seconds without any."""
        waiting = self._waiting
        if not waiting:
            self._idle = True
            if not waiting:
                with suppress(Empty):
                    self._wakes.get(timeout=timeout)
            self._idle = False
        taken = waiting[:]
        del waiting[: len(taken)]
        return taken

    # Room.

    async def _enter(self) -> None:
        waiter = self._backend.waiter()
        entry = [waiter, False]
        self._outside.append(entry)
        try:
            await waiter.wait()
        except BaseException:
            if entry[1]:
                self._leave(1)
            else:
                self._outside.remove(entry)
            raise

    def _leave(self, count: int) -> None:
        """There is room for `count` more."""
        self._free += count
        while self._outside and self._free > 0:
            entry = self._outside.popleft()
            self._free -= 1
            entry[1] = True
            entry[0].wake()

    def _undo(self, operation: Operation) -> None:
        if operation.undo is None or operation.error is not None:
            return
        made = operation.undo(operation.result)
        if made is not None and not self.closed:
            self.put(made)


class Readers:
    """The tasks that wait for events, in the loop. A task is in the list before it looks, so that
    it misses nothing published in between; only those of a stream are woken when it grows."""

    def __init__(self, backend: Backend, queue: WorkQueue) -> None:
        self._backend = backend
        self._queue = queue
        self.waiters: dict[str, set[Waiter]] = {}

    async def first(
        self, stream: str, wait: float, ask: Callable[[], Awaitable[tuple[list[Found], bool]]]
    ) -> list[Found]:
        """The list that `ask` returns, as soon as it is not empty, within `wait` seconds. An empty
        list as soon as its other result is true: events are due that `ask` doesn't return."""
        if wait <= 0:
            return (await ask())[0]
        loop = self._backend
        end = loop.now() + wait
        while True:
            waiter = loop.waiter()
            self._enter(stream, waiter)
            try:
                found, is_due = await ask()
                if found or is_due or loop.now() >= end:
                    return found
                timer = loop.at(end, waiter.wake)
                try:
                    await waiter.wait()
                finally:
                    timer.cancel()
            finally:
                self._leave(stream, waiter)

    def wake(self, streams: set[str] | None) -> None:
        """Something can be read on `streams`; None: it is not known on which."""
        for stream in list(self.waiters) if streams is None else streams:
            for waiter in self.waiters.get(stream, ()):
                waiter.wake()

    def _enter(self, stream: str, waiter: Waiter) -> None:
        self.waiters.setdefault(stream, set()).add(waiter)
        self._queue.watched = True

    def _leave(self, stream: str, waiter: Waiter) -> None:
        waiters = self.waiters[stream]
        waiters.discard(waiter)
        if not waiters:
            del self.waiters[stream]
            self._queue.watched = bool(self.waiters)
