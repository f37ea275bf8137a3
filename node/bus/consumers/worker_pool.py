"""Runs a handler: its workers take events, call the handler, and schedule retries.

They continue after every failure of the handler or the store, until the bus closes.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio

from parley._node.backoff import Backoff
from parley._node.bus.consumers.group_consumer import GroupConsumer, describe
from parley._node.bus.consumers.options import ConsumerOptions
from parley._node.bus.errors import BusClosedError, BusError, as_bus_error
from parley._node.bus.event import BusEvent
from parley._node.bus.store_retry import TRANSIENT, StoreRetry, jitter
from parley._node.errors import APPLICATION_ERRORS
from parley._node.logs import RateLimitedLogger, one_line
from parley._node.transport.conditions import Condition, pause
from parley._node.transport.loop import Loop
from parley._node.transport.task_scope import SingleTask

logger = logging.getLogger("parley.bus")

Handler = Callable[[BusEvent[Any]], Awaitable[Any]]

# Logged failures of one handler: the burst, and the rate per second.
FAILURES: Final = 100
FAILURES_PER_SECOND: Final = 1.0
# Backoff after an error that is not transient (damage, a refusal), which an operator may fix.
LONG_PAUSES: Final = Backoff(first=5.0, longest=300.0)
# The time for a cancelled handler to end, in seconds.
CANCEL_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """A handler and its options. `group` is the name that its consumers use."""

    handler: Handler
    options: ConsumerOptions
    group: str
    concurrency: int
    retries: Backoff


class WorkerPool:
    """The workers of one handler, which start immediately.

    `begin` creates their consumer; `ended` is called after it was closed.
    """

    def __init__(
        self,
        spec: HandlerSpec,
        loop: Loop,
        begin: Callable[[ConsumerOptions, str], Awaitable[GroupConsumer]],
        ended: Callable[[GroupConsumer], None],
    ) -> None:
        self._spec = spec
        self._loop = loop
        self._begin = begin
        self._ended = ended
        self._what = f"{spec.options.stream} for {spec.options.group}"
        self._changes = Condition(loop.waiter)
        self._closing = False
        self._consumer: GroupConsumer | None = None
        self._failures = RateLimitedLogger(FAILURES, FAILURES_PER_SECOND)
        self._active: list[BusEvent | None] = [None] * spec.concurrency
        self._workers = [SingleTask(loop, self._changes) for _ in range(spec.concurrency)]
        self._supervisor = SingleTask(loop, self._changes)
        self._supervisor.start(self._supervise)

    async def close(self, timeout: float) -> None:
        """Stop taking events, and cancel handlers that still run after `timeout` seconds.

        The events of cancelled handlers are redelivered.
        """
        self._closing = True
        with anyio.move_on_after(timeout):
            if self._consumer is not None:
                with suppress(BusError):  # `leave` raises it again.
                    await self._consumer.stop(BusClosedError("the bus is closed"))
            await self._changes.until(lambda: not any(job.running for job in self._workers))
        await self._supervisor.end()

    # The supervisor.

    async def _supervise(self) -> None:
        """Join the group and run the workers; repeat after each failure of the store."""
        soon, failures = StoreRetry(self._loop, self._what), 0
        while not self._closing:
            began = self._loop.now()
            try:
                consumer = await self._begin(self._spec.options, self._spec.group)
                soon.failures = 0
                failure = await self._work_on(consumer)
            except TRANSIENT as error:
                await soon.wait(error)
                continue
            except Exception as error:
                failure = as_bus_error(error)
            if isinstance(failure, BusClosedError):
                return
            failures = 1 if self._loop.now() - began > LONG_PAUSES.steady else failures + 1
            seconds = LONG_PAUSES.delay(failures, jitter())
            text = "pausing the handler of %s for %.0f s: %s"
            logger.error(
                text,
                self._what,
                seconds,
                one_line(str(failure)),
                extra={"event": "bus.handler-paused", "seconds": seconds},
            )
            await pause(self._loop, seconds)

    async def _work_on(self, consumer: GroupConsumer) -> BusError:
        """Run the workers until the store fails or the bus closes; return that error."""
        self._consumer = consumer
        consumer.active = lambda: [event for event in self._active if event is not None]
        consumer.free = lambda: self._active.count(None) or 1
        workers = self._workers
        try:
            for number, worker in enumerate(workers):
                worker.start(self._work, number, consumer)
            while any(worker.running for worker in workers):
                await self._changes.until(
                    lambda: not any(worker.running for worker in workers) or bool(self._crashed())
                )
                for number, event in self._crashed():
                    # The handler itself raised a cancellation.
                    self._active[number] = None
                    await self._schedule_retry(consumer, event, None)
                    workers[number].start(self._work, number, consumer)
            return consumer.failure or BusClosedError("the bus is closed")
        finally:
            self._consumer = None
            with anyio.CancelScope(shield=True):
                await self._end(consumer)

    def _crashed(self) -> list[tuple[int, BusEvent]]:
        """Return the workers that ended while they processed an event."""
        return [
            (number, event)
            for number, event in enumerate(self._active)
            if event is not None and not self._workers[number].running
        ]

    async def _end(self, consumer: GroupConsumer) -> None:
        for worker in self._workers:
            worker.cancel()
        with anyio.move_on_after(CANCEL_PATIENCE):
            await self._changes.until(lambda: not any(job.running for job in self._workers))
        left = [(event, "cancelled") for event in self._active if event is not None]
        self._active = [None] * len(self._workers)
        try:
            await consumer.leave(BusClosedError("the bus is closed"), left)
        except BusError as error:
            logger.warning(
                "%s: %s", self._what, one_line(str(error)), extra={"event": "bus.leave-failed"}
            )
        finally:
            self._ended(consumer)

    # The workers.

    async def _work(self, number: int, consumer: GroupConsumer) -> None:
        handler, active = self._spec.handler, self._active
        ready, done = consumer.ready, consumer.acks.done
        while True:
            if not ready:
                try:
                    await consumer.more()
                except BusError:
                    return
                continue  # Another worker may have taken the event.
            event = active[number] = ready.pop()
            try:
                await handler(event)
            except APPLICATION_ERRORS as error:
                if not await self._schedule_retry(consumer, event, error):
                    active[number] = None
                    return
            else:
                done(event)
            active[number] = None

    async def _schedule_retry(
        self, consumer: GroupConsumer, event: BusEvent, error: BaseException | None
    ) -> bool:
        """Log a failure of the handler and schedule the retry; return whether it was recorded."""
        failures = self._failures
        if failures.allows(self._loop.now()):
            if failures.silent:
                text = "%d failures of the handler of %s were not logged"
                left_out = failures.take_left_out()
                logger.warning(
                    text,
                    left_out,
                    self._what,
                    extra={"event": "log.rationed", "left_out": left_out},
                )
            text = "the handler of %s failed (event %s, attempt %d)"
            logger.error(
                text,
                self._what,
                event.id,
                event.attempt,
                exc_info=error,
                extra={"event": "bus.handler-failed", "id": event.id, "attempt": event.attempt},
            )
        delay = self._spec.retries.delay(event.attempt, jitter())
        reason = "cancelled" if error is None else describe(error)
        try:
            await consumer.acks.fail(event, delay, reason)
        except Exception as failure:
            consumer.error = consumer.error or as_bus_error(failure)
            return False
        return True
