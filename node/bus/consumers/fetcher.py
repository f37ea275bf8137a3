"""Fetches the events of one consumer: its own pending events, due ones, and new ones.

Redelivered events are fetched first and in small numbers, so that an event that crashes its process
does not use up the attempts of other events.
"""

from contextlib import suppress
from heapq import heappop, heappush
from typing import Final

import anyio

from parley._node.bus.config import BusConfig
from parley._node.bus.consumers.options import ConsumerContext
from parley._node.bus.errors import BusRefusedError, BusUnavailableError
from parley._node.bus.model import Delivery
from parley._node.transport.loop import Timer

# The maximum interval between checks for due events, and length of one wait for new events, in
# seconds.
CLAIM_INTERVAL: Final = 1.0
# The maximum interval between removals of idle consumers, in seconds.
REMOVAL_INTERVAL: Final = 3_600.0
# How far the store's clock may lag behind the loop's because of rounding, in seconds.
CLOCK_SLACK: Final = 0.002
# The most due times of refused events that are remembered. Other events are found within
# `CLAIM_INTERVAL`.
MOST_AWAITED: Final = 1_000


class Fetcher:
    """Fetches events for one consumer, from one task at a time."""

    def __init__(self, context: ConsumerContext, config: BusConfig) -> None:
        self._store = context.store
        self.loop = loop = context.loop
        self._options = context.options
        self._consumer = context.name
        self._ttl = config.consumer_ttl
        # Send a request in time, because an idle consumer is removed after `consumer_ttl`.
        self.interval = min(CLAIM_INTERVAL, context.options.reclaim_after, self._ttl / 3)
        self._removal_interval = min(REMOVAL_INTERVAL, self._ttl)
        self._claim_due = self._removal_due = loop.now()
        self.awaited: list[float] = []  # A heap of the due times of events refused here.
        # Whether this consumer may have pending events that are not here: those of an earlier
        # process with its name, or of a lost response.
        self._owning = True
        self._waiting: anyio.CancelScope | None = None
        self._timer: Timer | None = None

    async def join(self) -> None:
        """Create the group and register this consumer. Raises the errors of `Store.join`."""
        await self._store.join(
            self._options.stream, self._options.group, self._consumer, self._options.after
        )

    def claim_at(self, when: float) -> None:
        """Look for due events at this time, even while waiting for new events."""
        when += CLOCK_SLACK
        if len(self.awaited) < MOST_AWAITED:
            heappush(self.awaited, when)
        self._claim_due = min(self._claim_due, when)
        if self._waiting is not None:
            self._interrupt_at(self._claim_due)

    async def fetch(self, fresh: int, again: int, *, wait: bool) -> list[Delivery]:
        """Return up to `again` redelivered events or, if there are none, up to `fresh` new ones.

        With `wait`, wait for at least one event. Raises the store's errors.
        """
        try:
            return await self._fetch(fresh, again, wait)
        except BusUnavailableError:
            self._owning = True
            raise

    async def _fetch(self, fresh: int, again: int, wait: bool) -> list[Delivery]:
        while True:
            found = await self._redelivered(again)
            if found:
                return found
            if not wait:
                return await self._read(fresh, 0.0)
            await self._remove_idle_consumers()
            found = await self._read_waiting(fresh)
            if found:
                return found

    async def _redelivered(self, count: int) -> list[Delivery]:
        store, options, consumer = self._store, self._options, self._consumer
        if self._owning:
            found = await store.recover_pending(options.stream, options.group, consumer, count)
            if found:
                return found
            self._owning = False
        now = self.loop.now()
        if now < self._claim_due:
            return []
        # Set the time before the request: an event refused during it may be due earlier.
        while self.awaited and self.awaited[0] <= now:
            heappop(self.awaited)
        self._claim_due = min([now + self.interval, *self.awaited[:1]])
        found = await store.claim(
            options.stream, options.group, consumer, count, options.reclaim_after
        )
        if found:
            self._claim_due = now  # There may be more.
        return found

    async def _read(self, count: int, wait: float) -> list[Delivery]:
        options = self._options
        return await self._store.read(options.stream, options.group, self._consumer, count, wait)

    async def _read_waiting(self, count: int) -> list[Delivery]:
        wait = self._claim_due - self.loop.now()
        if wait <= 0:
            return []
        found: list[Delivery] = []
        with anyio.CancelScope() as self._waiting:
            try:
                found = await self._read(count, wait)
            finally:
                self._waiting = None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
        if not found:
            # The wait timed out, or the store ended it because events are due.
            self._claim_due = min(self._claim_due, self.loop.now())
        return found

    def _interrupt_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(max(when, self.loop.now()), self._interrupt)

    def _interrupt(self) -> None:
        if self._waiting is not None:
            # The store releases an event that it is about to deliver: see `Store`.
            self._waiting.cancel()

    async def _remove_idle_consumers(self) -> None:
        now = self.loop.now()
        if now >= self._removal_due:
            self._removal_due = now + self._removal_interval
            # The bus of another node may refuse it.
            with suppress(BusRefusedError):
                await self._store.remove_consumers(
                    self._options.stream, self._options.group, self._ttl
                )
