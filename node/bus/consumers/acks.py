"""Records in the store whether the events of one consumer were acknowledged, failed or buried.

Acknowledgements are collected and recorded in batches: when a batch of events is used up, after
`GATHER` seconds, and at the end. A refused event is never acknowledged. If the store cannot record
an outcome, the event is redelivered after its idle time.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import anyio

from parley._node.bus.consumers.options import ConsumerContext, require_delay
from parley._node.bus.dead_letters import LONGEST_ERROR
from parley._node.bus.errors import BusClosedError, BusError, NotPendingError, as_bus_error
from parley._node.bus.event import AckState, BusEvent
from parley._node.bus.identifiers import DEAD
from parley._node.bus.store_retry import StoreRetry
from parley._node.logs import RateLimitedLogger, one_line
from parley._node.transport.conditions import Condition
from parley._node.transport.task_scope import SingleTask

# How long an acknowledgement waits for others to be recorded with it, in seconds.
GATHER: Final = 0.01
# The most acknowledgements recorded in one operation.
MOST_AT_ONCE: Final = 1_000


class AckBuffer:
    """Processed events whose acknowledgement is not recorded yet.

    `recorded` is called with the number of recorded acknowledgements. After `error`, which waiting
    cannot fix, recording stops.
    """

    def __init__(
        self, context: ConsumerContext, retry: StoreRetry, recorded: Callable[[int], None]
    ) -> None:
        self._store = context.store
        self._loop = loop = context.loop
        self._options = context.options
        self._retry = retry
        self._recorded = recorded
        self._changes = Condition(loop.waiter)
        self._job = SingleTask(loop, self._changes)
        self._ids: list[str] = []
        self._armed = False
        self.error: BusError | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id: str) -> None:
        self._ids.append(id)
        if not self._armed:
            # The timer is never cancelled: with many events per second that would cost more.
            self._armed = True
            self._loop.call_at(self._loop.now() + GATHER, self._ring)

    def flush(self) -> None:
        """Start recording the gathered acknowledgements."""
        if self._ids and self.error is None:
            self._job.start(self._record)

    async def wait_for_space(self, most: int) -> None:
        """Wait until at most `most` acknowledgements are unrecorded.

        Raises:
            BusError: the acknowledgements cannot be recorded.
        """
        if len(self._ids) > most or self.error is not None:
            self.flush()
            await self._changes.until(lambda: len(self._ids) <= most or self.error is not None)
            if self.error is not None:
                raise self.error

    async def end(self) -> None:
        """Stop recording. A write in progress may or may not take effect."""
        self.error = self.error or BusClosedError("the consumer was closed")
        await self._job.end()

    def _ring(self) -> None:
        self._armed = False
        self.flush()

    async def _record(self) -> None:
        options, ids = self._options, self._ids
        try:
            while ids:
                some = ids[:MOST_AT_ONCE]
                record = partial(self._store.ack, options.stream, options.group, some)
                count = await self._retry.run_with_retries(record)
                del ids[: len(some)]
                self._recorded(count)
                self._changes.notify()
        except Exception as error:
            self.error = as_bus_error(error)
        except BaseException:
            # The event loop is closing: wake the waiting callers.
            self.error = self.error or BusClosedError("the bus is closed")
            raise


logger = logging.getLogger("parley.bus")

T = TypeVar("T")

# Log lines about dead letters of one consumer: the burst, and the rate in lines per second.
LINES: Final = 100
LINES_PER_SECOND: Final = 1.0


class AckRecorder:
    """Records the outcome of each event of one consumer.

    `due` is called with the time, by the loop's clock, at which a refused event is due. After
    `close`, methods raise the error `closed`.
    """

    def __init__(self, context: ConsumerContext, group: str, due: Callable[[float], None]) -> None:
        self.group = group
        self.closed: BusClosedError | None = None
        self._store = context.store
        self._loop = context.loop
        self._options = context.options
        self._consumer = context.name
        self._counters = context.counters
        self._due = due
        self._retry_scopes: set[anyio.CancelScope] = set()
        self._log_limit = RateLimitedLogger(LINES, LINES_PER_SECOND)
        self._retry = StoreRetry(context.loop, context.what)
        self.buffer = AckBuffer(context, StoreRetry(context.loop, context.what), self._recorded)

    # Called by the consuming loop or a worker.

    def done(self, event: BusEvent) -> None:
        """Acknowledge an event soon, unless it was acknowledged or refused."""
        if event.ack_state is AckState.NONE:
            event.ack_state = AckState.ACK
            self.buffer.add(event.stored.id)

    async def fail(self, event: BusEvent, delay: float, reason: str) -> None:
        """Refuse an event, unless it was acknowledged or refused, and wait until that is recorded.

        Raises:
            BusError: the error is not transient; the event is redelivered after its idle time.
        """
        if event.ack_state is AckState.NONE:
            event.ack_state = AckState.NACK
            # If the event is no longer pending here, another consumer has it.
            await self._retry.run_with_retries(
                partial(self._record, event, delay, _bounded(reason))
            )

    # Called by the application.

    async def acknowledge(self, event: BusEvent) -> None:
        options, ids = self._options, [event.stored.id]
        count, again = await self._retry_until_closed(
            partial(self._store.ack, options.stream, options.group, ids)
        )
        # Another task, or the loop's next iteration, may have acknowledged it at the same time.
        was_said, event.ack_state = event.ack_state is AckState.ACK, AckState.ACK
        self._recorded(count)
        if not count and not was_said and not again:
            raise NotPendingError(
                f"cannot acknowledge event {event.stored.id!r}: it is no longer pending"
            )

    async def refuse(self, event: BusEvent, delay: float, reason: str) -> None:
        delay = require_delay(delay)
        if self.closed is not None:
            raise self.closed
        # From here on the event must not be acknowledged, even if recording fails.
        event.ack_state = AckState.NACK
        record = partial(self._record, event, delay, _bounded(reason))
        was_pending, again = await self._retry_until_closed(record)
        if not was_pending and not again:
            raise NotPendingError(
                f"cannot refuse event {event.stored.id!r}: it is no longer pending here"
            )

    # Called while fetching.

    async def make_dead_letter(self, id: str, fault: str) -> None:
        """Make an event that cannot be delivered a dead letter. Raises the store's errors."""
        options = self._options
        if options.stream.endswith("." + DEAD):
            # An unreadable dead letter stays on its stream.
            await self._store.ack(options.stream, options.group, [id])
        else:
            await self._bury(id, _bounded(fault))
        self._log_dead_letter(id, fault)

    # Closing.

    def close(self, error: BusClosedError) -> None:
        """Accept no further outcomes, and raise `error` in callers that wait for theirs."""
        self.closed = error
        for scope in self._retry_scopes:
            scope.cancel()

    async def recorded(self) -> None:
        """Wait until the store has recorded all acknowledgements.

        Raises:
            BusError: the store cannot record them.
        """
        await self.buffer.wait_for_space(0)

    async def stop(self) -> None:
        await self.buffer.end()

    # Internal.

    async def _record(self, event: BusEvent, delay: float, reason: str) -> bool:
        """Record a refusal; return whether the event was pending with this consumer.

        If it was not, nothing changes.
        """
        options, id = self._options, event.stored.id
        if options.max_attempts is not None and event.attempt >= options.max_attempts:
            was_pending = await self._bury(id, reason)
            if was_pending:
                self._log_dead_letter(id, f"attempt {event.attempt}: {reason}")
        else:
            was_pending = await self._store.nack(
                options.stream, options.group, self._consumer, id, delay, reason
            )
            self._due(self._loop.now() + delay)
        self._counters.failed += was_pending
        return was_pending

    async def _bury(self, id: str, reason: str) -> bool:
        options = self._options
        letter = await self._store.bury(options.stream, options.group, self._consumer, id, reason)
        if letter is not None:
            self._counters.dead_lettered += 1
        return letter is not None

    def _log_dead_letter(self, id: str, fault: str) -> None:
        if self._log_limit.allows(self._loop.now()):
            left_out = self._log_limit.take_left_out()
            more = f" ({left_out} more were not logged)" if left_out else ""
            text = "%s %s became a dead letter: %s%s"
            logger.error(
                text,
                self._options.stream,
                id,
                one_line(fault),
                more,
                extra={"event": "bus.dead-lettered", "stream": self._options.stream, "id": id},
            )

    def _recorded(self, count: int) -> None:
        self._counters.acknowledged += count

    async def _retry_until_closed(self, ask: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """Return the result of `ask`, and whether it was retried.

        After a retry, an earlier attempt may have succeeded. Raises `closed` after `close`.
        """
        tries = 0

        async def count() -> T:
            nonlocal tries
            tries += 1
            return await ask()

        with anyio.CancelScope() as scope:
            if self.closed is None:
                self._retry_scopes.add(scope)
                try:
                    return await self._retry.run_with_retries(count), tries > 1
                finally:
                    self._retry_scopes.discard(scope)
        raise self.closed or BusClosedError("the bus is closed")


def _bounded(reason: str) -> str:
    return one_line(reason)[:LONGEST_ERROR]
