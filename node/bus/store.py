"""`Store`, the interface of stores, and `LazyStore`, a store that is opened at its first use.

SQLite (`sqlite/`), Redis (`redis/`) and the bus of another node (`remote/`) implement it. Retries,
handlers and schemas are implemented on top of this interface.

When a method returns, its work is done. When it raises, nothing was done; only after
BusUnavailableError is the outcome unknown.

A stream is named after its event (`auth.user_registered`). A group reads a stream once: each event
is delivered to one of its consumers and is pending until `ack` or `bury`. `claim` redelivers an
event to another consumer when it is due (after `nack`, `release`, `redeliver`) or was idle for too
long.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from parley._node.bus.errors import BusClosedError, as_bus_error
from parley._node.bus.model import (
    ConsumerInfo,
    Delivery,
    GroupInfo,
    NewEvent,
    PendingInfo,
    Published,
    StoredEvent,
    StreamInfo,
    Trim,
)
from parley._node.errors import ParleyError
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition
from parley._node.transport.task_scope import SingleTask


class Store(Protocol):
    """A store of streams and groups.

    Every method can raise BusClosedError, BusUnavailableError, BusBusyError, BusDamagedError and
    BusRefusedError. Methods that write can raise BusFullError.

    Methods that return up to `count` events return fewer if the events are large. Only an empty
    list means that there are no more events.

    Methods can be called concurrently and can be cancelled. The outcome of a cancelled call is
    unknown, as after BusUnavailableError, but events delivered to a cancelled caller are released.
    If that fails, the consumer's next `read` raises BusUnavailableError; then `recover_pending`
    returns the events of the lost response.
    """

    async def open(self, loop: Backend) -> None:
        """Prepare the store. Called once, in the event loop of all later calls.

        Raises:
            BusError: the store cannot be opened.
            ConfigError: its address or a setting is invalid.
        """

    async def aclose(self) -> None:
        """Finish the operations in progress and close. Can be called again."""

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        """Store events in order, all or none; return their IDs in the same order.

        On return, they are on disk if the store can guarantee that (docs/bus.md). With `durable`
        False they survive at least the end of this process. An event whose `key` was published on
        the same stream within the idempotency window is not stored again.

        Raises:
            InvalidEventError: the store's format cannot represent one of the events.
        """

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        """Register a consumer, and create its group if it does not exist.

        A new group begins after the ID `after` (`0-0`: all events, `$`: new events only).
        """

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        """Return up to `count` events that the group has not received yet, in order.

        Waits up to `wait` seconds for the first event, or until events become due for `claim`. A
        group that has vanished is recreated at this consumer's position.
        """

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        """Return up to `count` pending events of this consumer that this process does not have.

        They are in order. Either an earlier process of the same name received them, and the attempt
        is counted; or the response with them was lost.
        """

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        """Take over up to `count` pending events that are due or idle, oldest first.

        An event is due after `nack`, `release` or `redeliver`, and idle if its consumer did not
        call `touch` for `idle` seconds. Each counts as another attempt.
        """

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """Reset the idle time of events that are being processed.

        Ignores events that are not pending with this consumer.
        """

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        """Record that events are processed; return how many were pending.

        The record is as durable as an event of `publish`.
        """

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        """Record that an event failed; return whether it was pending with this consumer.

        It is due again in `delay` seconds, with `error` in its history. If it was not pending with
        this consumer, nothing changes.
        """

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """Return unstarted events to the group: they are due now, without another attempt counted.

        Ignores events that are not pending with this consumer.
        """

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        """Move an event and its history to the dead-letter stream, and acknowledge it, atomically.

        The stream is `STREAM.dead`, the data is built by `dead_data`, and the history ends with
        `error`. Returns the ID of the dead letter, or None if the event was not pending with this
        consumer.
        """

    # Inspection.

    async def streams(self) -> list[StreamInfo]:
        """Return all streams, by name."""

    async def groups(self, stream: str) -> list[GroupInfo]:
        """Return the groups of a stream by name; empty if it does not exist."""

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        """Return the consumers of a group by name; empty if it does not exist."""

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        """Return up to `count` pending events of the group, by id, after the id `after`."""

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        """Return up to `count` events after `after` and up to `until` (inclusive), in order.

        Ignores groups. Waits up to `wait` seconds for the first event.
        """

    # Maintenance.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        """Move the group's position to `after`, backward or forward; create a missing group.

        Pending events stay pending.
        """

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Make events of the stream pending and due in the group, with their attempts reset.

        Returns the IDs that exist.
        """

    async def trim(self, stream: str, bounds: Trim) -> int:
        """Delete the oldest events beyond `bounds`, read or not; return how many."""

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        """Delete events from a stream; return how many existed."""

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        """Remove consumers that were idle for `idle` seconds; return their names.

        Their pending events are due now.
        """

    async def remove_group(self, stream: str, group: str) -> bool:
        """Remove a group and its pending events; return whether it existed.

        After BusFullError, some events may be removed already; call it again to continue.
        """


class LazyStore:
    """A store that is opened at its first use, in the loop that `loop` returns, and closed once.

    Before it is opened, `is_open` and `is_closed` are both False.
    """

    def __init__(self, store: Store, loop: Callable[[], Backend]) -> None:
        self.store = store
        self.is_open = False
        self.is_closed = False
        self.closed_because = "the bus is closed"
        self._loop = loop
        self._changes = Condition(lambda: loop().waiter())
        self._opening: SingleTask | None = None
        self._error: ParleyError | None = None

    @property
    def loop(self) -> Backend:
        """The event loop of the store; raises ParleyError if the owner is not running."""
        return self._loop()

    async def opened(self) -> Store:
        """Return the store, opened if necessary. Raises the errors of `Bus.opened`."""
        if not self.is_open:
            self.require_not_closed()
            opening = self._opening
            if opening is None:
                opening = self._opening = SingleTask(self.loop, self._changes)
            # Open it in a separate task, because the first caller may be cancelled while others
            # wait.
            opening.start(self._open)
            await self._changes.until(lambda: not opening.running)
            self._require_open()
        return self.store

    def closed_error(self) -> BusClosedError:
        return BusClosedError(self.closed_because)

    def require_not_closed(self) -> None:
        if self.is_closed:
            raise self.closed_error()

    async def aclose(self) -> None:
        """Close the store, if it was opened. It cannot be reopened."""
        self.is_closed = True
        if self._opening is not None:
            await self._opening.end()
            self.is_open = False
            await self.store.aclose()

    def _require_open(self) -> None:
        if self._error is not None:
            raise self._error
        if not self.is_open or self.is_closed:
            raise self.closed_error()

    async def _open(self) -> None:
        self._error = None
        try:
            await self.store.open(self.loop)
        except ParleyError as error:
            self._error = error
        except Exception as error:
            self._error = as_bus_error(error)
        else:
            self.is_open = True
