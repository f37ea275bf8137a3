"""`BusEvent`, an event as an application receives it, and `History`, the events of a stream."""

from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, Protocol, Self

from parley._node.bus.data import decode_body
from parley._node.bus.errors import BusRefusedError, NotPendingError
from parley._node.bus.identifiers import AFTER_ALL, BEFORE_ALL, parse_id
from parley._node.bus.model import StoredEvent
from parley._node.bus.store import LazyStore, Store
from parley._node.bus.store_retry import StoreRetry
from parley._node.data_types import DataType, E_co
from parley._node.errors import ParleyError


class AckState(Enum):
    """Whether the application acknowledged or refused an event; only its first call counts."""

    NONE = "none"
    ACK = "ack"
    NACK = "nack"


class AckTarget(Protocol):
    """The consumer that delivered an event and records its acknowledgement."""

    @property
    def group(self) -> str:
        """The event's group, as its consumers call it."""

    async def acknowledge(self, event: "BusEvent[Any]") -> None:
        """Record that the event was processed."""

    async def refuse(self, event: "BusEvent[Any]", delay: float, reason: str) -> None:
        """Record that processing the event failed."""


class BusEvent(Generic[E_co]):
    """An event of a bus. The data of a `BusEvent[Order]` is an Order.

    `attempt` counts the deliveries to the group from 1. It is 0 for an event of `Bus.history`,
    which needs no acknowledgement.

    Example:

        from parley.bus import BusEvent

        bus = node.bus("sqlite:///bus.db")

        @bus.handler("shop.order_placed", group="billing")
        async def bill(event: BusEvent) -> None:
            print(event.id, event.data, event.attempt)
    """

    __slots__ = ("_data", "_returns", "_target", "ack_state", "attempt", "stored")

    def __init__(
        self,
        stored: StoredEvent,
        attempt: int = 0,
        holder: AckTarget | None = None,
        data: Any = None,
        returns: DataType[Any] | None = None,
    ) -> None:
        self.stored = stored
        self.attempt = attempt
        self.ack_state = AckState.NONE
        self._target = holder
        self._data = data
        self._returns = returns

    def __repr__(self) -> str:
        return f"<BusEvent {self.stored.name} {self.stored.id}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """MILLISECONDS-NUMBER. Later events of the stream have greater IDs."""
        return self.stored.id

    @property
    def name(self) -> str:
        """API.EVENT."""
        return self.stored.name

    @property
    def body(self) -> str:
        """The data as stored, in JSON."""
        return self.stored.body

    @property
    def data(self) -> E_co:
        """The published data.

        Raises:
            InvalidEventError: it is not a JSON object; only for an event of `Bus.history`.
            MalformedDataError: it does not fit `returns=`; only for an event of `Bus.history`.
        """
        if self._data is None:
            plain = decode_body(self.stored.body)
            self._data = plain if self._returns is None else self._returns.read(plain)
        data: E_co = self._data
        return data

    @property
    def version(self) -> int:
        """The version of the data, set by its publisher; 1 by default."""
        return self.stored.version

    @property
    def idempotency_key(self) -> str | None:
        """The key it was published with; on Redis, every event has one."""
        return self.stored.key

    @property
    def published_at(self) -> datetime:
        """The time when the event was stored, by the store's clock, in milliseconds (UTC)."""
        return parse_id(self.stored.id).published_at

    @property
    def group(self) -> str | None:
        """The group that received it; None for an event of `Bus.history`."""
        return self._target.group if self._target is not None else None

    async def ack(self) -> None:
        """Acknowledge the event. Returns when the store has recorded it, and waits while it cannot.

        Can be called again.

        Raises:
            NotPendingError: the event was refused before, or another consumer has processed it.
            BusClosedError: the bus or its consumer was closed; the acknowledgement may have been
                recorded.
            BusError: the acknowledgement cannot be recorded, and waiting does not help.
        """
        if self.ack_state is AckState.ACK:
            return
        if self.ack_state is AckState.NACK:
            raise NotPendingError(
                f"cannot acknowledge event {self.stored.id!r}: nack() was called before"
            )
        await self._require_target().acknowledge(self)

    async def nack(self, delay: float = 0.0, reason: str = "") -> None:
        """Refuse the event, so that its group receives it again in `delay` seconds.

        After the last attempt it becomes a dead letter, with `reason` in its history. Waits for the
        store as `ack` does.

        Raises:
            NotPendingError: the event was acknowledged before, or went to another consumer.
            BusError: the refusal cannot be recorded; the event is redelivered after its idle time.
        """
        if self.ack_state is AckState.ACK:
            raise NotPendingError(
                f"cannot refuse event {self.stored.id!r}: ack() was called before"
            )
        await self._require_target().refuse(self, delay, reason)

    def _require_target(self) -> AckTarget:
        if self._target is None:
            raise ParleyError(
                f"cannot acknowledge or refuse event {self.stored.id!r}: it was read from the "
                "history, not delivered to a group"
            )
        return self._target


# The number of events fetched at a time, and the seconds of one wait for new events.
PAGE: Final = 100
WAIT: Final = 1.0


class History(Generic[E_co]):
    """The stored events of one stream, in order: `async for event in bus.history(...)`.

    Reading them changes nothing.
    """

    __slots__ = ("_follow", "_place", "_ready", "_retry", "_returns", "_store", "_stream", "_until")

    def __init__(
        self,
        store: LazyStore,
        stream: str,
        after: str,
        until: str | None,
        *,
        follow: bool,
        returns: DataType[Any] | None = None,
    ) -> None:
        self._store = store
        self._stream = stream
        self._place = after
        self._until = until
        self._follow = follow
        self._returns = returns
        self._retry: StoreRetry | None = None
        self._ready: list[BusEvent[Any]] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusEvent[E_co]:
        """Return the next event. With `follow`, wait while the store is unavailable.

        Raises:
            BusError: the store failed.
        """
        while not self._ready:
            if self._retry is None:
                found = await self._page()
            else:
                found = await self._retry.run_with_retries(self._page)
            if not self._follow and not found:
                raise StopAsyncIteration
            if self._follow and self._retry is None:
                self._retry = StoreRetry(self._store.loop, f"the events of {self._stream}")
            returns = self._returns
            self._ready = [BusEvent(stored, returns=returns) for stored in reversed(found)]
        event = self._ready.pop()
        self._place = event.id
        return event

    async def _page(self) -> list[StoredEvent]:
        store = await self._store.opened()
        if self._place == AFTER_ALL:
            self._place = await self._end(store)
        wait = WAIT if self._follow else 0.0
        return await store.history(self._stream, self._place, self._until, PAGE, wait)

    async def _end(self, store: Store) -> str:
        """Return the ID of the last event now, so that no event between two waits is missed.

        If the node refuses to list streams, each wait begins at the current end.
        """
        try:
            streams = await store.streams()
        except BusRefusedError:
            return AFTER_ALL
        for stream in streams:
            if stream.name == self._stream:
                return stream.last_id or BEFORE_ALL
        return AFTER_ALL
