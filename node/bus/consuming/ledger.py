"""Acknowledgements of one consumer: gathered, and recorded together.

One rule: what was asked for is recorded soon (when a batch is used up, after `GATHER` seconds, at
the end), in its order and by one task, as often as it takes; who asks does not wait for that.
Knows the store, no events.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from node.bus.consuming.job import Job
from node.bus.consuming.patience import Patience, as_bus_error
from node.bus.consuming.terms import Terms
from node.bus.errors import BusClosedError, BusError
from node.bus.store import Store
from node.transport.loop import Loop
from node.transport.waiting import Changes

# Seconds that an acknowledgement waits for others to go with.
GATHER: Final = 0.01
# How many are recorded at once at most.
MOST_AT_ONCE: Final = 1_000


class Ledger:
    """What is done and yet to be recorded. `recorded` is told how many were; `error` is what no
    waiting helps against: then nothing more is recorded."""

    __slots__ = (
        "_armed",
        "_changes",
        "_ids",
        "_job",
        "_loop",
        "_patience",
        "_recorded",
        "_store",
        "_terms",
        "error",
    )

    def __init__(
        self,
        store: Store,
        loop: Loop,
        terms: Terms,
        patience: Patience,
        recorded: Callable[[int], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._terms = terms
        self._patience = patience
        self._recorded = recorded
        self._changes = Changes(loop.waiter)
        self._job = Job(loop, self._changes)
        self._ids: list[str] = []
        self._armed = False
        self.error: BusError | None = None

    def __len__(self) -> int:
        """How many are yet to be recorded."""
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
        """Wait until at most so many are yet to be recorded.

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
                count = await self._patience.insist(record)
                del ids[: len(some)]
                self._recorded(count)
                self._changes.notify()
        except Exception as error:
            self.error = as_bus_error(error)
        except BaseException:
            # Its loop ends: nobody is to wait for what is not recorded any more.
            self.error = self.error or BusClosedError("the bus is closed")
            raise
