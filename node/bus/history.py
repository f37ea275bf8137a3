"""`History`: the events of a stream as they are stored, a page at a time.

One rule: whoever looks changes nothing, and nothing stays open when they stop. Knows no groups.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Self

from node.bus.event import BusEvent
from node.bus.store import Store

# Seconds that one wait for what is yet to come takes.
WAIT: Final = 1.0


class History:
    """Events of one stream, in their order: `async for event in bus.history(...)`."""

    __slots__ = ("_follow", "_opened", "_page", "_place", "_ready", "_stream", "_until")

    def __init__(
        self,
        opened: Callable[[], Awaitable[Store]],
        stream: str,
        after: str,
        until: str | None,
        page: int,
        *,
        follow: bool,
    ) -> None:
        self._opened = opened
        self._stream = stream
        self._place = after
        self._until = until
        self._page = page
        self._follow = follow
        self._ready: list[BusEvent] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusEvent:
        """The next event; raises BusError if the store fails."""
        while not self._ready:
            store = await self._opened()
            wait = WAIT if self._follow else 0.0
            found = await store.history(self._stream, self._place, self._until, self._page, wait)
            if not found and not self._follow:
                raise StopAsyncIteration
            self._ready = [BusEvent(stored) for stored in reversed(found)]
        event = self._ready.pop()
        self._place = event.id
        return event
