"""Acknowledgements of one consumer: gathered, and recorded together.

They are recorded soon (when a batch is used up, after `GATHER` seconds, at the end), in order and
by one task, with as many tries as it takes; the caller does not wait for that.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from parley._node.bus.consumers.terms import Seat
from parley._node.bus.errors import BusClosedError, BusError
from parley._node.bus.retry import StoreRetry, as_bus_error
from parley._node.transport.conditions import Changes
from parley._node.transport.task_scope import Job

# Seconds that an acknowledgement waits for others to go with.
GATHER: Final = 0.01
# How many are recorded at once at most.
MOST_AT_ONCE: Final = 1_000


class Ledger:
    """Events that are done, but have yet to be recorded. `recorded` is told how many were; after
    `error`, which waiting does not help against, nothing more is recorded."""

    def __init__(self, seat: Seat, retry: StoreRetry, recorded: Callable[[int], None]) -> None:
        self._store = seat.store
        self._loop = loop = seat.loop
        self._terms = seat.terms
        self._retry = retry
        self._recorded = recorded
        self._changes = Changes(loop.waiter)
        self._job = Job(loop, self._changes)
        self._ids: list[str] = []
        self._armed = False
        self.error: BusError | None = None

    def __len__(self) -> int:
        """How many have yet to be recorded."""
        return len(self._ids)

    def add(self, id: str) -> None:
        """It is done."""
        self._ids.append(id)
        if not self._armed:
            # Never cancelled: with many events a second that would cost more than it saves.
            self._armed = True
            self._loop.at(self._loop.now() + GATHER, self._ring)

    def flush(self) -> None:
        """Record now what there is."""
        if self._ids and self.error is None:
            self._job.start(self._record)

    async def room(self, most: int) -> None:
        """Wait until at most so many have yet to be recorded.

        Raises:
            BusError: they cannot be.
        """
        if len(self._ids) > most or self.error is not None:
            self.flush()
            await self._changes.until(lambda: len(self._ids) <= most or self.error is not None)
            if self.error is not None:
                raise self.error

    async def end(self) -> None:
        """Record no more; what is being recorded may be or not."""
        self.error = self.error or BusClosedError("its consumer has left")
        await self._job.end()

    def _ring(self) -> None:
        self._armed = False
        self.flush()

    async def _record(self) -> None:
        terms, ids = self._terms, self._ids
        try:
            while ids:
                some = ids[:MOST_AT_ONCE]
                record = partial(self._store.ack, terms.stream, terms.group, some)
                count = await self._retry.insist(record)
                del ids[: len(some)]
                self._recorded(count)
                self._changes.notify()
        except Exception as error:
            self.error = as_bus_error(error)
        except BaseException:
            # Its loop ends: no caller may wait for what will not be recorded.
            self.error = self.error or BusClosedError("the bus is closed")
            raise
