"""`Consumption`: the events of a group, as one loop of the application takes them.

Asking for the next event acknowledges the one before, and so does leaving normally or by `break`;
leaving by an exception does not.
"""

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self

import anyio

from parley._node.bus.consumers.group_consumer import GroupConsumer, describe
from parley._node.bus.errors import BusClosedError, BusError
from parley._node.bus.event import BusEvent
from parley._node.data_types import E_co
from parley._node.errors import ParleyError
from parley._node.logs import one_line

logger = logging.getLogger("parley.bus")


class Consumption(Generic[E_co]):
    """The events of one name for one group, in their order: `async with bus.consume(...) as
    events`, then `async for event in events`. One task reads at a time; `anext` may be cancelled,
    and loses nothing."""

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
            BusError: the bus cannot be opened, or the group cannot be joined. ConfigError: the
                group reads another event of an API that has one stream for all its events.
        """
        if self._begun:
            raise ParleyError("a consumption is begun once")
        self._begun = True
        consumer = self.consumer = await self._begin(self)
        consumer.at_work = self._at_work
        self._ready = consumer.ready
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Acknowledge the last event, or refuse it after an exception; give back what was not
        begun, record all acknowledgements.

        Raises:
            BusError: they could not be recorded in five seconds; not raised after an exception.
        """
        consumer = self.consumer
        if consumer is None or self._left:
            return
        self._left = True
        reason = None if exc_val is None else describe(exc_val)
        try:
            await self._settle(consumer, reason, BusClosedError("the loop was left"))
        except BusError as error:
            if exc_val is None and not isinstance(error, BusClosedError):
                raise
            logger.warning(
                "%s: %s",
                consumer.terms.stream,
                one_line(str(error)),
                extra={"event": "bus.leave-failed", "stream": consumer.terms.stream},
            )
        finally:
            self._ended(self, consumer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusEvent[E_co]:
        """Acknowledge the event before, unless something was said of it, and wait for the next.

        Raises:
            BusClosedError: the bus was closed. BusError: the store failed for good (while it only
                gives no answer, this waits). ClosedResourceError: the loop was left.
                BusyResourceError: two tasks read.
        """
        if self._current is not None:
            self._acknowledge(self._current)
        if not self._ready:
            await self._fill()
        event = self._current = self._ready.pop()
        return event

    async def close(self, error: BusClosedError) -> None:
        """The bus closes: whoever asks for the next event meets `error`, and the one that is being
        processed goes to another."""
        consumer = self.consumer
        if consumer is not None and not self._left:
            self._left = self._closing = True
            try:
                await self._settle(consumer, "the bus was closed", error)
            except BusError as met:
                logger.warning(
                    "%s: %s",
                    consumer.terms.stream,
                    one_line(str(met)),
                    extra={"event": "bus.leave-failed", "stream": consumer.terms.stream},
                )
            finally:
                self._ended(self, consumer)

    def _at_work(self) -> tuple[BusEvent[Any], ...]:
        return () if self._current is None else (self._current,)

    def _acknowledge(self, event: BusEvent[Any]) -> None:
        self._current = None
        if self.consumer is not None and not self._left:
            self.consumer.outcomes.done(event)

    async def _fill(self) -> None:
        if self.consumer is None:
            raise ParleyError("a consumption is read within `async with`")
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
            consumer.outcomes.done(event)
            await consumer.leave(error)
        else:
            await consumer.leave(error, [(event, reason)])
