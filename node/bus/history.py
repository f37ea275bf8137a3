"""`History`: the events of a stream as they are stored, a page at a time. Looking at them changes
nothing, and leaves nothing open.
"""

from typing import Any, Final, Generic, Self

from parley._node.bus.errors import BusRefusedError
from parley._node.bus.event import BusEvent
from parley._node.bus.ids import AFTER_ALL, BEFORE_ALL
from parley._node.bus.lazy_store import LazyStore
from parley._node.bus.model import StoredEvent
from parley._node.bus.retry import StoreRetry
from parley._node.bus.store import Store
from parley._node.data_types import DataType, E_co

# Events fetched at once, and seconds of one wait for new ones.
PAGE: Final = 100
WAIT: Final = 1.0


class History(Generic[E_co]):
    """Events of one stream, in their order: `async for event in bus.history(...)`."""

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
        """The next event. Whoever follows waits for a store that once answered and does not now;
        otherwise raises BusError if the store fails."""
        while not self._ready:
            if self._retry is None:
                found = await self._page()
            else:
                found = await self._retry.insist(self._page)
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
        """The id of the last event now, so that none between two waits is missed. If the list of
        streams is refused, each wait begins at the end anew."""
        try:
            streams = await store.streams()
        except BusRefusedError:
            return AFTER_ALL
        for stream in streams:
            if stream.name == self._stream:
                return stream.last_id or BEFORE_ALL
        return AFTER_ALL
