"""`GroupConsumer`, one consumer of a group, and `Consumption`, an application's loop over events.

The consumer sends heartbeats for events that are queued or being processed here. When it ends, it
releases unfinished events.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self

import anyio

from parley._node.bus.consumers.acks import AckRecorder
from parley._node.bus.consumers.fetcher import Fetcher
from parley._node.bus.consumers.options import ConsumerContext
from parley._node.bus.data import Schemas, decode_body
from parley._node.bus.errors import (
    BusClosedError,
    BusError,
    BusUnavailableError,
    InvalidEventError,
    as_bus_error,
)
from parley._node.bus.event import AckState, BusEvent
from parley._node.bus.model import Delivery
from parley._node.bus.store_retry import TRANSIENT, StoreRetry
from parley._node.data_types import E_co
from parley._node.errors import APPLICATION_ERRORS, MalformedDataError, ParleyError
from parley._node.logs import one_line
from parley._node.transport.conditions import Condition, yield_to_loop
from parley._node.transport.loop import Timer
from parley._node.transport.task_scope import SingleTask

# The number of events fetched first. It doubles, up to `batch`, when they are consumed within
# `QUICK` seconds, and halves when that takes longer than `SLOW`, to leave events for other
# consumers.
FIRST_FETCH: Final = 16
QUICK: Final = 0.1
SLOW: Final = 1.0
# The time to record the outcomes of the last events, in seconds.
LEAVE_TIMEOUT: Final = 5.0
# Heartbeats per `reclaim_after`.
BEATS: Final = 3


class GroupConsumer:
    """The fetched events of one consumer.

    `active` returns the events that are being processed, and `free` the number of idle workers,
    which limits how many redelivered events are fetched at a time.

    `ready` has the events to process; the next one is last. It is always the same list object.
    """

    def __init__(
        self, context: ConsumerContext, fetcher: Fetcher, acks: AckRecorder, schemas: Schemas
    ) -> None:
        self.context = context
        self.options = options = context.options
        self.acks = acks
        self.active: Callable[[], Iterable[BusEvent]] = tuple
        self.free: Callable[[], int] = lambda: 1
        self.ready: list[BusEvent] = []
        self.error: BusError | None = None
        self._store = context.store
        self._loop = loop = context.loop
        self._fetcher = fetcher
        self._schemas = schemas
        self._retry = StoreRetry(loop, context.what)
        self._changes = Condition(loop.waiter)
        self._fetching = SingleTask(loop, self._changes)
        self._half: list[BusEvent] = []  # The second half of the batch in `ready`.
        self._later: list[BusEvent] = []  # The next batch.
        self._unseen: list[Delivery] = []  # Events fetched after `_later` and not checked yet.
        self._count = min(FIRST_FETCH, options.batch)
        self._taken_at = loop.now()  # When the batch in `ready` was started.
        self._heartbeat_timer: Timer | None = None
        self._heartbeat_task = SingleTask(loop, self._changes)
        self._seen: tuple[float, int, int] = (0.0, 0, 0)
        self._returning: list[str] = []  # Events that `stop` has yet to release.

    @property
    def failure(self) -> BusError | None:
        """The error that ended this consumer, or None."""
        return self.error or self.acks.buffer.error

    # Consuming.

    async def more(self) -> None:
        """Wait until an event is `ready`; other tasks run at least once.

        Raises:
            BusError: the consumer has ended.
        """
        # The acknowledgements of one batch are recorded while those of the next are gathered.
        buffer, most = self.acks.buffer, 2 * self.options.batch
        if not self._half:
            buffer.flush()
            self._adjust_count(self._loop.now() - self._taken_at)
        await yield_to_loop(self._loop)
        while not self.ready:
            if self.failure is not None:
                raise self.failure
            if len(buffer) > most:
                await buffer.wait_for_space(most)
            elif self._half:
                self._take_half()
            elif self._later:
                self._take_later()
            else:
                self._fetching.start(self._fetch, True)
                await self._changes.until(self._has_news)

    def _has_news(self) -> bool:
        held = self.ready or self._half or self._later
        return bool(held) or self.error is not None or not self._fetching.running

    def _adjust_count(self, took: float) -> None:
        if took < QUICK:
            self._count = min(self._count * 2, self.options.batch)
        elif took > SLOW:
            self._count = max(self._count // 2, 1)

    def _take_half(self) -> None:
        self.ready.extend(self._half)
        self._half.clear()
        if self._count == self.options.batch and self._loop.now() - self._taken_at < QUICK:
            # At this rate, the other half will soon be consumed.
            self._fetching.start(self._fetch, False)

    def _take_later(self) -> None:
        self._taken_at = self._loop.now()
        later = self._later
        middle = len(later) // 2
        self._half.extend(later[:middle])
        self.ready.extend(later[middle:])
        later.clear()

    # Fetching.

    async def _fetch(self, wait: bool) -> None:
        """Fetch once, with retries."""
        try:
            while True:
                try:
                    if not self._unseen:
                        await self._fetch_unseen(wait)
                    await self._look_at_unseen()
                except TRANSIENT as error:
                    await self._retry.wait(error)
                    continue
                self._retry.failures = 0
                if self._later or not wait:
                    return
        except Exception as error:
            self.error = self.error or as_bus_error(error)
        except BaseException:
            self.error = self.error or BusClosedError("the bus is closed")
            raise

    async def _fetch_unseen(self, wait: bool) -> None:
        free = min(self.free(), self.options.batch)
        fetched = await self._fetcher.fetch(max(self._count, free), free, wait=wait)
        fetched.reverse()
        self._unseen = fetched

    async def _look_at_unseen(self) -> None:
        """Check fetched events, and make undeliverable ones dead letters."""
        unseen, good = self._unseen, []
        counters, acks = self.context.counters, self.acks
        try:
            while unseen:
                stored, attempt = unseen[-1]
                data, fault = self._read(unseen[-1])
                if fault:
                    await acks.make_dead_letter(stored.id, fault)
                    unseen.pop()
                    continue
                unseen.pop()
                if attempt > 1:
                    counters.retried += 1
                good.append(BusEvent(stored, attempt, acks, data))
        finally:
            if good:
                counters.delivered += len(good)
                good.reverse()
                self._later[:0] = good
                self._schedule_heartbeat()
                self._changes.notify()

    def _read(self, delivery: Delivery) -> tuple[Any, str]:
        """Return the data of an event and an empty string, or None and why it is undeliverable."""
        stored, attempt = delivery
        most, returns = self.options.max_attempts, self.options.returns
        if most is not None and attempt > most:
            return None, f"not processed after {most} attempts"
        try:
            data = decode_body(stored.body)
            if not self._schemas.is_empty:
                # Use the requested name, because another node may send any name.
                self._schemas.check_consumed(self.options.stream, data)
            return (data if returns is None else returns.read(data)), ""
        except (InvalidEventError, MalformedDataError) as error:
            return None, str(error)
        except APPLICATION_ERRORS as error:  # Raised by the code of an application's model.
            return None, f"not readable as {returns}: {describe(error)}"

    # Heartbeats.

    def _schedule_heartbeat(self) -> None:
        if self._heartbeat_timer is None and self.error is None:
            when = self._loop.now() + self.options.reclaim_after / BEATS
            self._heartbeat_timer = self._loop.call_at(when, self._heartbeat)

    def _heartbeat(self) -> None:
        self._heartbeat_timer = None
        working = [event.id for event in self.active() if event.ack_state is AckState.NONE]
        waiting = self._waiting_ids()
        if not working and not waiting:
            return
        seen = (self._taken_at, len(self.ready), len(self._half))
        stuck, self._seen = seen == self._seen, seen
        self._schedule_heartbeat()
        if not stuck:
            self._heartbeat_task.start(self._send_heartbeat, working + waiting, [])
        elif not self._heartbeat_task.running:
            # Nothing was consumed since the last heartbeat, so release the unstarted events.
            for held in (self.ready, self._half, self._later):
                held.clear()
            self._fetcher.claim_at(self._loop.now())
            self._heartbeat_task.start(self._send_heartbeat, working, waiting)

    async def _send_heartbeat(self, alive: list[str], given_back: list[str]) -> None:
        try:
            if alive:
                options = self.options
                await self._store.touch(options.stream, options.group, self.context.name, alive)
        except Exception as error:
            # The next heartbeat may succeed. Otherwise other consumers take over the events.
            self._retry.log_error(as_bus_error(error))
        try:
            await self._give_back(given_back)
        except Exception as error:
            self.error = self.error or as_bus_error(error)

    async def _give_back(self, ids: list[str]) -> None:
        if ids:
            options = self.options
            await self._retry.run_with_retries(
                partial(self._store.release, options.stream, options.group, self.context.name, ids)
            )

    def _waiting_ids(self) -> list[str]:
        return [event.id for event in (*self.ready, *self._half, *self._later)]

    # Closing.

    async def stop(self, error: BusError) -> None:
        """Stop fetching and release unstarted events; `more` then raises `error`.

        After a cancellation, call it again to continue.

        Raises:
            BusError: the events cannot be released, and waiting does not help.
        """
        self.error = error
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat_timer = None
        await self._fetching.end()
        returning = self._returning
        returning += self._waiting_ids() + [delivery.event.id for delivery in self._unseen]
        for held in (self.ready, self._half, self._later, self._unseen):
            held.clear()
        self._changes.notify()
        await self._changes.until(lambda: not self._heartbeat_task.running)
        await self._give_back(returning)
        returning.clear()

    async def leave(
        self, error: BusClosedError, failed: Sequence[tuple[BusEvent, str]] = ()
    ) -> None:
        """End this consumer within `LEAVE_TIMEOUT` seconds, even if cancelled.

        Releases unstarted events, refuses those in `failed` (due immediately), and records
        acknowledgements. Callers of `more` get `error`.

        Raises:
            BusError: the store did not record everything; the affected events are redelivered after
                their idle time.
        """
        acks = self.acks
        steps: list[Callable[[], Awaitable[None]]] = [partial(self.stop, error)]
        steps += [partial(acks.fail, event, 0.0, reason) for event, reason in failed]
        steps.append(acks.recorded)
        errors: list[BusError] = []
        try:
            with anyio.move_on_after(LEAVE_TIMEOUT, shield=True) as scope:
                for step in steps:
                    try:
                        await step()
                    except BusError as met:
                        errors.append(met)
        finally:
            acks.close(error)
            with anyio.CancelScope(shield=True):
                await self._fetching.end()
                await self._heartbeat_task.end()
                await acks.stop()
        if errors:
            raise errors[0]
        if scope.cancelled_caught:
            text = f"cannot record the outcomes of the last events within {LEAVE_TIMEOUT:g} s"
            raise BusUnavailableError(text)


def describe(error: BaseException) -> str:
    """Return the text of an exception for an event's history."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "cancelled"
    text, name = str(error), type(error).__name__
    return f"{name}: {text}" if text else name


logger = logging.getLogger("parley.bus")


class Consumption(Generic[E_co]):
    """The events of one name for one group, in order.

    Use it as `async with bus.consume(...) as events`, then `async for event in events`. The next
    iteration, or leaving the block normally, acknowledges the previous event; leaving it by an
    exception refuses the event. Only one task may read at a time. Cancelling `anext` loses no
    event.
    """

    def __init__(
        self,
        begin: Callable[["Consumption[Any]"], Awaitable[GroupConsumer]],
        ended: Callable[["Consumption[Any]", GroupConsumer], None],
    ) -> None:
        self._begin = begin
        self._ended = ended
        self._begun = False
        self._left = False
        self._closing = False
        self._current: BusEvent[Any] | None = None
        self._ready: list[BusEvent[Any]] = []
        self._reading = anyio.ResourceGuard("reading from")
        self.consumer: GroupConsumer | None = None

    async def __aenter__(self) -> Self:
        """Join the group.

        Raises:
            BusError: the bus cannot be opened, or the group cannot be joined.
            ConfigError: the group already reads another event of an API with a single stream.
        """
        if self._begun:
            raise ParleyError(
                "cannot enter this Consumption again; call bus.consume() for a new one"
            )
        self._begun = True
        consumer = self.consumer = await self._begin(self)
        consumer.active = self._active
        self._ready = consumer.ready
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Acknowledge the last event, or refuse it after an exception.

        Also releases unstarted events and records all acknowledgements.

        Raises:
            BusError: they could not be recorded in five seconds; not raised after an exception.
        """
        consumer = self.consumer
        if consumer is None or self._left:
            return
        self._left = True
        reason = None if exc_val is None else describe(exc_val)
        try:
            await self._settle(consumer, reason, BusClosedError("the loop has ended"))
        except BusError as error:
            if exc_val is None and not isinstance(error, BusClosedError):
                raise
            logger.warning(
                "%s: %s",
                consumer.options.stream,
                one_line(str(error)),
                extra={"event": "bus.leave-failed", "stream": consumer.options.stream},
            )
        finally:
            self._ended(self, consumer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusEvent[E_co]:
        """Return the next event, and acknowledge the previous one if its outcome is not set.

        Waits while the store is unavailable.

        Raises:
            BusClosedError: the bus was closed.
            BusError: the store failed permanently.
            ClosedResourceError: the `async with` block has ended.
            BusyResourceError: another task is reading.
        """
        if self._current is not None:
            self._acknowledge(self._current)
        if not self._ready:
            await self._fill()
        event = self._current = self._ready.pop()
        return event

    async def close(self, error: BusClosedError) -> None:
        """Close with the bus: waiting readers get `error`, and the current event is refused."""
        consumer = self.consumer
        if consumer is not None and not self._left:
            self._left = self._closing = True
            try:
                await self._settle(consumer, "the bus was closed", error)
            except BusError as met:
                logger.warning(
                    "%s: %s",
                    consumer.options.stream,
                    one_line(str(met)),
                    extra={"event": "bus.leave-failed", "stream": consumer.options.stream},
                )
            finally:
                self._ended(self, consumer)

    def _active(self) -> tuple[BusEvent[Any], ...]:
        return () if self._current is None else (self._current,)

    def _acknowledge(self, event: BusEvent[Any]) -> None:
        self._current = None
        if self.consumer is not None and not self._left:
            self.consumer.acks.done(event)

    async def _fill(self) -> None:
        if self.consumer is None:
            raise ParleyError("cannot read from this Consumption: enter it with `async with` first")
        with self._reading:
            if self._left and not self._closing:
                raise anyio.ClosedResourceError
            await self.consumer.more()

    async def _settle(
        self, consumer: GroupConsumer, reason: str | None, error: BusClosedError
    ) -> None:
        event, self._current = self._current, None
        if event is None:
            await consumer.leave(error)
        elif reason is None:
            consumer.acks.done(event)
            await consumer.leave(error)
        else:
            await consumer.leave(error, [(event, reason)])
