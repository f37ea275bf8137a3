"""`Bus`: events published durably, and consumed by groups, whatever store keeps them.

One rule: publishing returns when the event is stored, and what a group was handed it is handed
again until it is acknowledged or set aside. Knows no SQL, no Redis and no wire: those are stores.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio

from node.backoff import Pauses
from node.bus.config import BusConfig
from node.bus.consuming.consumption import Consumption
from node.bus.consuming.crew import Crew, Duty, Handler
from node.bus.consuming.holding import Holding
from node.bus.consuming.intake import Intake
from node.bus.consuming.outcomes import Outcomes
from node.bus.consuming.seats import Seats, process_name
from node.bus.consuming.terms import (
    BATCH,
    MAX_ATTEMPTS,
    RECLAIM_AFTER,
    Terms,
    read_terms,
    require_count,
)
from node.bus.ids import FIRST, Position
from node.bus.opening import open_store
from node.bus.publishing import Publishing
from node.bus.store import Store
from node.bus.upkeep import Upkeep
from node.errors import ConfigError, ParleyError
from node.logs import one_line
from node.transport.backend import Backend
from node.transport.ground import Ground

logger = logging.getLogger("parley.bus")

H = TypeVar("H", bound=Handler)

# Seconds that handlers have to finish when a bus without a node closes.
DRAIN_TIMEOUT: Final = 5.0
RETRY_DELAY: Final = 1.0
MAX_RETRY_DELAY: Final = 300.0


class Bus(Publishing, Upkeep):
    """Events by name, `API.EVENT`, kept until they are processed.

    Made by `Node.bus` and `Peer.bus`, and by `open_bus` where there is no node; opened at first
    use. `loop` gives the loop that it lives in. `counters` count what was done here.
    """

    def __init__(self, store: Store, config: BusConfig, *, loop: Callable[[], Backend]) -> None:
        super().__init__(store, config, loop)
        self._seats = Seats(config.consumer or process_name())
        self._duties: dict[tuple[str, str], Duty] = {}
        self._crews: list[Crew] = []
        self._crewed: set[tuple[str, str]] = set()
        self._running = False
        self._consumptions: set[Consumption] = set()

    def __repr__(self) -> str:
        return f"<Bus on {type(self.store).__name__}>"

    # Consuming.

    def consume(
        self,
        name: str,
        group: str,
        *,
        batch: int = BATCH,
        reclaim_after: float = RECLAIM_AFTER,
        max_attempts: int | None = MAX_ATTEMPTS,
        start: Position = FIRST,
    ) -> Consumption:
        """The events of a name for a group: `async with bus.consume(...) as events`, then `async
        for event in events`.

        Asking for the next event acknowledges the one before, and so does leaving normally; an
        exception does not: the event comes again, or after `max_attempts` (None: without end)
        goes to the dead letters. At most `batch` events (1 to 10,000) are fetched at once. What
        another consumer holds for `reclaim_after` seconds without a sign of life is taken over.
        A group that is new begins at `start`: `first`, `new`, an id, or a time.

        Raises:
            InvalidEventError: it is no such name, group or start. ConfigError: a number is wrong.
        """
        terms = read_terms(
            self.config,
            name,
            group,
            batch=batch,
            reclaim_after=reclaim_after,
            max_attempts=max_attempts,
            start=start,
        )

        async def begin(consumption: Consumption) -> Holding:
            holding = await self._hold(terms, group)
            self._consumptions.add(consumption)
            return holding

        def ended(consumption: Consumption, holding: Holding) -> None:
            self._consumptions.discard(consumption)
            self._let_go(holding)

        return Consumption(begin, ended)

    def handler(
        self,
        name: str,
        group: str,
        *,
        concurrency: int = 1,
        max_attempts: int | None = MAX_ATTEMPTS,
        batch: int = BATCH,
        reclaim_after: float = RECLAIM_AFTER,
        retry_delay: float = RETRY_DELAY,
        max_retry_delay: float = MAX_RETRY_DELAY,
        start: Position = FIRST,
    ) -> Callable[[H], H]:
        """Register the handler of a group's events: `async def handler(event)`. It runs for as
        long as the node, up to `concurrency` of it at a time; with 1, events are processed in
        their order.

        An event is acknowledged when it returns. If it raises, that is logged, and the event
        comes again after about `retry_delay` seconds, twice that after the next time, at most
        `max_retry_delay`; after `max_attempts` it goes to the dead letters. The rest as `consume`.

        Raises:
            ParleyError: the group has a handler for it. InvalidEventError: it is no such name,
                group or start. ConfigError: an option is wrong, or the handler no coroutine
                function.
        """
        terms = read_terms(
            self.config,
            name,
            group,
            batch=batch,
            reclaim_after=reclaim_after,
            max_attempts=max_attempts,
            start=start,
        )
        require_count("concurrency", concurrency)
        retries = Pauses(first=retry_delay, longest=max_retry_delay)

        def register(handler: H) -> H:
            if not iscoroutinefunction(handler) and not iscoroutinefunction(
                getattr(handler, "__call__", None)  # noqa: B004 - whether it is async is asked
            ):
                raise ConfigError(f"the handler of {name} is no coroutine function")
            if (name, group) in self._duties:
                raise ParleyError(f"{name} has a handler for {group} already")
            if self.is_closed:
                raise self.closed_error()
            self._duties[name, group] = Duty(handler, terms, group, concurrency, retries)
            if self._running:
                self._begin_crews()
            return handler

        return register

    # Its life.

    async def __aenter__(self) -> Self:
        """Open the store, and begin the handlers' work.

        Raises:
            BusError: it cannot be opened. ConfigError: a setting is wrong.
        """
        await self.opened()
        self.begin()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose(DRAIN_TIMEOUT if exc_type is None else 0.0)

    def begin(self) -> None:
        """The loop runs: handlers begin. Called by who owns the bus; a second time is fine."""
        if not self.is_closed:
            self._running = True
            self._begin_crews()

    async def drain(self, timeout: float) -> None:
        """Have the handlers finish what they do, in `timeout` seconds at most; what they had not
        begun is for others. No handler runs after it."""
        self._running = False
        crews, self._crews = self._crews, []
        async with anyio.create_task_group() as tasks:
            for crew in crews:
                tasks.start_soon(crew.close, timeout)

    async def aclose(self, timeout: float = 0.0, *, because: str = "") -> None:
        """Drain, record what is done, give back what was not begun, and close the store. Whoever
        waits for events meets BusClosedError, which says `because`. A second time is fine."""
        if because and not self.is_closed:
            self.closed_because = because
            for name, group in self._crewed:
                logger.warning("the handler of %s for %s ends: %s", name, group, one_line(because))
        # Also when we are being cancelled: what is done is to be recorded.
        with anyio.CancelScope(shield=True):
            await self.drain(timeout)
            for consumption in list(self._consumptions):
                await consumption.close(self.closed_error())
            await self.close_store()

    # Inside.

    async def _hold(self, terms: Terms, group: str) -> Holding:
        """Join a group under a name of our own."""
        store, loop = await self.opened(), self.loop
        consumer = self._seats.take(terms)
        intake = Intake(store, loop, terms, consumer, self.config)
        try:
            await intake.join()
            if self.is_closed:
                raise self.closed_error()
        except BaseException:
            self._seats.leave(terms, consumer)
            raise
        counters = self.counters
        outcomes = Outcomes(store, loop, terms, consumer, group, counters, intake.claim_at)
        return Holding(store, loop, terms, intake, outcomes, counters, self.schemas)

    def _let_go(self, holding: Holding) -> None:
        self._seats.leave(holding.terms, holding.consumer)

    def _begin_crews(self) -> None:
        for key, duty in self._duties.items():
            if key not in self._crewed:
                self._crewed.add(key)
                self._crews.append(Crew(duty, self.loop, self._hold, self._let_go))


@asynccontextmanager
async def open_bus(
    url: str, config: BusConfig | None = None, *, drain_timeout: float = DRAIN_TIMEOUT
) -> AsyncIterator[Bus]:
    """A bus for a program that has no node: `async with open_bus("sqlite:///bus.db") as bus`.
    At the end handlers have `drain_timeout` seconds to finish.

    Raises:
        AddressError: it is no address of a bus. ConfigError: a setting is wrong. BusError: it
            cannot be opened.
    """
    store, settings = open_store(url, config)
    ground = Ground("the bus")
    backend = await ground.enter()
    try:
        bus = Bus(store, settings, loop=lambda: backend)
        timeout = 0.0
        try:
            await bus.opened()
            bus.begin()
            yield bus
            timeout = drain_timeout
        finally:
            await bus.aclose(timeout)
    finally:
        await ground.leave()
