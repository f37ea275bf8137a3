"""Combines the requests of concurrent callers into one.

Each caller gets its own result or error, and cancelling one caller does not affect the others. A
single request is sent immediately.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from anyio import get_cancelled_exc_class

from parley._node.bus.errors import (
    BusClosedError,
    BusDamagedError,
    BusFullError,
    BusRefusedError,
    InvalidEventError,
)
from parley._node.errors import ParleyError
from parley._node.transport.conditions import yield_to_loop
from parley._node.transport.loop import Loop, Waiter

# Errors that one item can cause for the whole request, which then has no effect. After any other
# error, the outcome is unknown or the same for each item.
_ONES_OWN: Final = (InvalidEventError, BusRefusedError, BusFullError, BusDamagedError)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Cost(NamedTuple):
    """The count and size of an item; items of different `kind` go into different requests."""

    number: int
    size: int
    kind: Hashable = None


class Bounds(NamedTuple):
    """The limits of one request, which a single item may exceed, and of concurrent requests."""

    number: int
    size: int
    under_way: int


class _Share(Generic[Item, Answer]):
    """The item and outcome of one caller."""

    __slots__ = ("answer", "cost", "error", "is_answered", "item", "waiter")

    answer: Answer

    def __init__(self, item: Item, cost: Cost, waiter: Waiter) -> None:
        self.item = item
        self.cost = cost
        self.waiter = waiter
        self.is_answered = False
        self.error: Exception | None = None


class Batcher(Generic[Item, Answer]):
    """Sends items in order, many at a time.

    `send` returns a result or an error for each item. If it raises an error that a single item can
    have caused, each item is sent separately. Any other error is raised in all callers.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | ParleyError]]],
        measure: Callable[[Item], Cost],
        loop: Loop,
        bounds: Bounds,
    ) -> None:
        self._send = send
        self._measure = measure
        self._loop = loop
        self._bounds = bounds
        self._shares: deque[_Share[Item, Answer]] = deque()
        self._under_way = 0
        self._is_due = False  # Set when a task to send the waiting items is scheduled.

    async def submit(self, item: Item) -> Answer:
        """Return the result for an item; raise what `send` raises.

        After a cancellation, the item may have been sent.

        Raises:
            BusClosedError: the event loop is closing.
        """
        if not self._under_way and not self._shares:
            self._under_way += 1
            try:
                (answer,) = await self._send([item])
            finally:
                self._under_way -= 1
                if self._shares:
                    self._start()
            if isinstance(answer, ParleyError):
                raise answer
            return answer
        share: _Share[Item, Answer] = _Share(item, self._measure(item), self._loop.waiter())
        self._shares.append(share)
        self._start()
        try:
            await share.waiter
        finally:
            if not share.is_answered and share in self._shares:
                self._shares.remove(share)
        if share.error is not None:
            raise share.error
        if not share.is_answered:
            raise BusClosedError("the bus is closed")
        return share.answer

    def _start(self) -> None:
        """Send waiting items later in this loop iteration, if another request may start."""
        if self._shares and not self._is_due and self._under_way < self._bounds.under_way:
            self._under_way += 1
            self._is_due = True
            self._loop.spawn(self._run)

    async def _run(self) -> None:
        try:
            while self._shares:
                taken = self._next()
                self._is_due = False
                self._start()  # Start another request for the remaining items.
                await self._send_batch(taken)
                self._is_due = True
                await yield_to_loop(
                    self._loop
                )  # Answered callers add their next items to the next batch.
        except get_cancelled_exc_class():
            while self._shares:
                self._shares.popleft().waiter.wake()  # The event loop is closing.
            raise
        finally:
            self._under_way -= 1
            self._is_due = False

    def _next(self) -> list[_Share[Item, Answer]]:
        """Remove and return as many waiting items as fit into one request, at least one."""
        taken = [self._shares.popleft()]
        number, size, kind = taken[0].cost
        while self._shares:
            cost = self._shares[0].cost
            number, size = number + cost.number, size + cost.size
            if number > self._bounds.number or size > self._bounds.size or cost.kind != kind:
                break
            taken.append(self._shares.popleft())
        return taken

    async def _send_batch(self, shares: list[_Share[Item, Answer]]) -> None:
        try:
            answers = await self._send([share.item for share in shares])
            for share, answer in zip(shares, answers, strict=True):
                if isinstance(answer, ParleyError):
                    share.error = answer
                else:
                    share.answer = answer
                share.is_answered = True
        except Exception as error:  # Programming errors are raised in the callers as well.
            if len(shares) > 1 and isinstance(error, _ONES_OWN):
                for share in shares:
                    await self._send_batch([share])
                return
            for share in shares:
                share.error, share.is_answered = error, True
        finally:
            for share in shares:
                share.waiter.wake()
