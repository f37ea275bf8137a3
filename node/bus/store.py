"""`Store`, the interface of stores, and `LazyStore`, a store that is opened at its first use.

SQLite (`sqlite/`), Redis (`redis/`) and the bus of another node (`remote/`) are stores. Retries,
handlers and schemas are above them.

When a method returns, its work is done; if it raises, nothing was done, except that after
BusUnavailableError the outcome is unknown.

A stream is named by its event (`auth.user_registered`). A group reads a stream once: each event is
handed to one of its consumers and is pending until `ack` or `bury`, or until `claim` hands it to
another consumer, when it is due (after `nack`, `release`, `redeliver`) or was idle for too long.
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
    """A store of streams and groups. Every method can raise BusClosedError, BusUnavailableError,
    BusBusyError, BusDamagedError and BusRefusedError; methods that write can raise BusFullError.

    Methods that return up to `count` events may return fewer if the events are large; only an empty
    list means that there are no more.

    Methods may be called concurrently, and cancelled: the operation is then done or not, as after
    BusUnavailableError, but an event handed out to a cancelled caller is released. If that fails,
    the consumer's next `read` raises BusUnavailableError; then `recover_pending` hands out the
    events of the lost answer.
    """

    async def open(self, loop: Backend) -> None:
        """Prepare the store. Called once, in the loop of all later calls.

        Raises:
            BusError: it cannot be opened. ConfigError: its address or a setting is wrong.
        """

    async def aclose(self) -> None:
        """Finish the operations in progress and close. Can be called again."""

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        """Store events, all or none, in order; return their ids in the same order.

        On return, they are on disk (if the store can guarantee it: docs/bus.md); with `durable`
        False they survive at least the end of this process. An event whose `key` was published on
        the same stream within the idempotency window is not stored again.

        Raises:
            InvalidEventError: the store's format cannot represent one of the events.
        """

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        """Create the group if it does not exist, beginning after the id `after` (`0-0`: all events,
        `$`: new events only), and register the consumer."""

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        """Return up to `count` events that the group was never handed, in order. Waits up to `wait`
        seconds for the first, or until events become due for `claim`. A group that has vanished is
        created again at this consumer's position."""

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        """Return up to `count` events that are pending with this consumer but not held by this
        process, in order: an earlier process of the same name received them (the attempt is
        counted), or the answer was lost."""

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        """Take over up to `count` pending events that are due (after `nack`, `release`,
        `redeliver`), or that any consumer has held for `idle` seconds without `touch`; oldest
        first, the attempt counted."""

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """Reset the idle time of events that are being processed; ignores those that are not
        pending with this consumer."""

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        """Record that events are processed (on disk, as with `publish`); return how many were
        pending."""

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        """Record that an event failed: it is due again in `delay` seconds, with `error` in its
        history. Returns whether it was pending with this consumer; otherwise nothing changes."""

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """Return events that were not begun: they are due now, and the delivery does not count as
        an attempt. Ignores those that are not pending with this consumer."""

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        """Move an event to the dead-letter stream (`STREAM.dead`, `dead_data`) with its history,
        ending in `error`, and acknowledge it, atomically. Returns the dead letter's id; None if the
        event was not pending with this consumer."""

    # Looking.

    async def streams(self) -> list[StreamInfo]:
        """All streams, by name."""

    async def groups(self, stream: str) -> list[GroupInfo]:
        """Return the groups of a stream by name; empty if it does not exist."""

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        """Return the consumers of a group by name; empty if it does not exist."""

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        """Return up to `count` pending events of the group, by id, after the id `after`."""

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        """Return up to `count` events after the id `after` and up to `until` (inclusive), in order,
        regardless of groups; waits up to `wait` seconds for the first."""

    # Keeping order.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        """Move the group's position to `after`, backward or forward; pending events stay pending. A
        group that does not exist is created."""

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Make events of the stream pending and due in the group, with attempts reset; return those
        of `ids` that exist."""

    async def trim(self, stream: str, bounds: Trim) -> int:
        """Delete the oldest events beyond `bounds`, read or not; return how many."""

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        """Delete events from a stream; return how many existed."""

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        """Remove consumers that were idle for `idle` seconds or more; their pending events are due
        now. Returns their names."""

    async def remove_group(self, stream: str, group: str) -> bool:
        """Remove a group and its pending events; return whether it existed. After BusFullError,
        some events may be removed already: call it again."""


class LazyStore:
    """A store that is opened at its first use, in the loop that `loop` returns, and closed once.
    Before that, `is_open` and `is_closed` are both False."""

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
        """The loop of the store; raises ParleyError if its owner is not running."""
        return self._loop()

    async def opened(self) -> Store:
        """Return the store, opened if necessary; raises as `Bus.opened`."""
        if not self.is_open:
            self.require_not_closed()
            opening = self._opening
            if opening is None:
                opening = self._opening = SingleTask(self.loop, self._changes)
            # In a task of its own: the first caller may be cancelled while others wait.
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
        """Close the store, if it was opened; for good."""
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
