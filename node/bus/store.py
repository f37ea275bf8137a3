"""`Store`: what the bus asks of whatever keeps its events; SQLite (`sqlite/`), Redis (`redis/`) and
another node (`node.bus.remote`) are stores. Retries, handlers and schemas are above it.

What a method says it did is done when it returns, and nothing of it if it raises, unless it raises
BusUnavailableError: then that is unknown.

A stream is named by its event (`auth.user_registered`). A group reads a stream once: each event is
handed to one of its consumers and is pending until `ack`, `bury`, or until it goes to another:
by `claim` when it is due (after `nack`, `release`, `redeliver`) or was idle for too long.
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
    """A store of streams and groups. Every method may raise BusClosedError, BusUnavailableError,
    BusBusyError, BusDamagedError and BusRefusedError; those that write BusFullError.

    Methods that hand out or show up to `count` events may give fewer, if they are large: only an
    empty list says that there are no more.

    All methods may be called by many tasks at once, and be cancelled: what was asked is then done
    or not, as after BusUnavailableError, but an event handed out to a cancelled caller is released.
    If it cannot be, the consumer's next `read` raises BusUnavailableError. After that error `own`
    hands out events of which the answer was lost.
    """

    async def open(self, loop: Backend) -> None:
        """Make ready; called once, in the loop that all else is called in.

        Raises:
            BusError: it cannot be opened. ConfigError: its address or a setting is wrong.
        """

    async def aclose(self) -> None:
        """Finish what is under way and let go; a second time is fine."""

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        """Store events, all or none of them, in their order; their ids in the same order.

        When it returns they are on disk (where the store can say so: docs/bus.md), or with
        `durable` False at least safe from the end of this process. An event whose `key` was
        published on the same stream within the idempotency window is not stored again.

        Raises:
            InvalidEventError: the store's format has no room for the contents of one of them.
        """

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        """Make the group if it is not there, to begin after the id `after` (`0-0`: all, `$`: what
        comes from now on), and make the consumer known."""

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        """Up to `count` events that the group was never handed, in order. Waits up to `wait`
        seconds for the first, or until events become due that `claim` hands out. A group that has
        vanished is made anew, to go on where this consumer was."""

    async def own(self, stream: str, group: str, consumer: str, count: int) -> list[Delivery]:
        """Up to `count` events that are pending with this very consumer and that this process
        doesn't have, in order: an earlier process of its name was handed them (the attempt is
        counted), or the answer with them was lost."""

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        """Take over up to `count` pending events that are due (after `nack`, `release`,
        `redeliver`), or that anybody, this consumer too, has held without a sign for `idle` seconds
        or more; oldest first, the attempt counted."""

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """They are being worked on: their idle time begins anew. Those that are not pending with
        this consumer are left alone."""

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        """They are done: recorded (and on disk, as with `publish`) when it returns. How many of
        them were pending."""

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        """It failed: due again in `delay` seconds, with `error` in its history. Whether it was
        pending with this consumer; if not, nothing is changed."""

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """They were never begun: due now, and this delivery is not counted as an attempt. Those
        that are not pending with this consumer are left alone."""

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        """Set it aside, in one step: on the dead-letter stream (`STREAM.dead`, `dead_data`) with
        its whole history, `error` being the last, and acknowledged. The dead letter's id; None if
        it was not pending with this consumer."""

    # Looking.

    async def streams(self) -> list[StreamInfo]:
        """All streams, by name."""

    async def groups(self, stream: str) -> list[GroupInfo]:
        """The groups of a stream, by name; empty if it is not there."""

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        """The consumers of a group, by name; empty if it is not there."""

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        """Up to `count` events that are pending in the group, by id, after the id `after`."""

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        """Up to `count` events after the id `after` and up to `until` (inclusive), in order,
        whatever any group does; waits up to `wait` seconds for the first."""

    # Keeping order.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        """The group reads on after `after`, be that back or forth; what is pending stays so. A
        group that is not there is made."""

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Make events that the stream still has pending and due in the group, attempts counted
        anew; those of `ids` that it has."""

    async def trim(self, stream: str, bounds: Trim) -> int:
        """Take away the oldest events beyond `bounds`, whether read or not; how many."""

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        """Take events out of a stream; how many there were."""

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        """Forget consumers that were idle for `idle` seconds or more; what is pending with them
        is due now. Their names."""

    async def remove_group(self, stream: str, group: str) -> bool:
        """Forget a group and its pending events; whether there was one. If it raises BusFullError
        some of these may be forgotten already: call it again."""


class LazyStore:
    """A store, in the loop that `loop` gives from the first use on. `is_open` and `is_closed` may
    both be False: before."""

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
        """Where it lives; ParleyError if its owner does not run."""
        return self._loop()

    async def opened(self) -> Store:
        """The store, opened if it was not; raises as `Bus.opened`."""
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
        """What to raise once it is closed."""
        return BusClosedError(self.closed_because)

    def require_not_closed(self) -> None:
        """Raise BusClosedError once it is closed."""
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
