"""`LazyStore`: a store that is opened at its first use, by one task whoever asks, and closed for
good.
"""

from collections.abc import Callable

from parley._node.bus.errors import BusClosedError
from parley._node.bus.retry import as_bus_error
from parley._node.bus.store import Store
from parley._node.errors import ParleyError
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Changes
from parley._node.transport.task_scope import Job


class LazyStore:
    """A store, in the loop that `loop` gives from the first use on. `is_open` and `is_closed` may
    both be False: before."""

    def __init__(self, store: Store, loop: Callable[[], Backend]) -> None:
        self.store = store
        self.is_open = False
        self.is_closed = False
        self.closed_because = "the bus is closed"
        self._loop = loop
        self._changes = Changes(lambda: loop().waiter())
        self._opening: Job | None = None
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
                opening = self._opening = Job(self.loop, self._changes)
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
