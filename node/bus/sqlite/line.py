"""The line between the loop and the thread: operations wait in it, and come back done.

One rule: it is bounded; who comes when it is full waits for room, in order, and holds nobody up.
Each value has one thread that sets it, so that no operation takes a lock: appending to a list and
cutting its head off are whole under the interpreter's own. Knows no database.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias

from node.bus.errors import BusClosedError
from node.transport.backend import Backend
from node.transport.loop import Waiter

Run: TypeAlias = Callable[..., Any]
Undo: TypeAlias = "Callable[[Any], Operation | None] | None"


class Kind(NamedTuple):
    """What an operation needs. `durable`: it is on the disk when it is done. `publishes`: it adds
    events, so it has less of the file to itself."""

    writes: bool = True
    durable: bool = False
    publishes: bool = False


LOOK: Final = Kind(writes=False)
MARK: Final = Kind()
RECORD: Final = Kind(durable=True)
PUBLISH: Final = Kind(durable=True, publishes=True)
PUBLISH_SOON: Final = Kind(publishes=True)


class Operation:
    """Something to be done by the thread: `run` with its books. `waiter` waits for it, if anybody
    does. `undo` makes of its result what is to be done if nobody is there any more to take it;
    `rescue` may make room where there was none, for a second try."""

    __slots__ = ("abandoned", "done", "error", "kind", "rescue", "result", "run", "undo", "waiter")

    def __init__(
        self,
        kind: Kind,
        run: Run,
        waiter: Waiter | None = None,
        undo: Undo = None,
        rescue: Run | None = None,
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


class Line:
    """Operations on their way. The thread calls `take`, the loop all else."""

    def __init__(self, backend: Backend, limit: int) -> None:
        self._backend = backend
        self._free = limit
        self._outside: deque[list[Any]] = deque()  # [waiter, whether it was let in]
        self._waiting: list[Operation | None] = []
        self._idle = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self.closed = False
        self.watched = False  # somebody waits for what other processes do

    async def do(
        self,
        kind: Kind,
        run: Run,
        undo: Undo = None,
        rescue: Run | None = None,
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
        """Append, whether there is room or not; None is the end."""
        self._waiting.append(operation)
        if self._idle:
            self.wake()

    def close(self) -> None:
        """Nothing comes any more; what is in line is still done."""
        self.closed = True
        self.put(None)

    def wake(self) -> None:
        """Have the thread look."""
        self._idle = False
        self._wakes.put(None)

    def finished(self, operations: list[Operation]) -> None:
        """They are done: in the loop."""
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

    # The thread's.

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
