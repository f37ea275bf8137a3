"""`History`: the events of a stream as they are stored, a page at a time. Looking at them changes
nothing, and leaves nothing open.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Self

from node.bus.errors import BusRefusedError
from node.bus.event import BusEvent
from node.bus.ids import AFTER_ALL, BEFORE_ALL
from node.bus.store import Store

# Events fetched at once, and seconds of one wait for new ones.
PAGE: Final = 100
WAIT: Final = 1.0


class History:
    """Events of one stream, in their order: `async for event in bus.history(...)`."""

    __slots__ = ("_follow", "_opened", "_place", "_ready", "_stream", "_until")

    def __init__(
        self,
        opened: Callable[[], Awaitable[Store]],
        stream: str,
        after: str,
        until: str | None,
        *,
        follow: bool,
    ) -> None:
        self._opened = opened
        self._stream = stream
        self._place = after
        self._until = until
        self._follow = follow
        self._ready: list[BusEvent] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusEvent:
        """The next event; raises BusError if the store fails."""
        while not self._ready:
            store = await self._opened()
            if self._place == AFTER_ALL:
                self._place = await self._end(store)
            wait = WAIT if self._follow else 0.0
            found = await store.history(self._stream, self._place, self._until, PAGE, wait)
            if not found and not self._follow:
                raise StopAsyncIteration
            self._ready = [BusEvent(stored) for stored in reversed(found)]
        event = self._ready.pop()
        self._place = event.id
        return event

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
