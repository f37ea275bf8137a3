"""A store that is opened at its first use, and what belongs to it: settings, schemas, counters.

One rule: it is opened by one task whoever asks, and closed for good. Publishes and consumes
nothing.
"""

from collections.abc import Callable

from node.bus.config import BusConfig
from node.bus.consuming.job import Job
from node.bus.consuming.patience import as_bus_error
from node.bus.counters import Counters
from node.bus.errors import BusClosedError
from node.bus.schemas import Schemas
from node.bus.store import Store
from node.errors import ParleyError
from node.transport.backend import Backend
from node.transport.waiting import Changes


class Opened:
    """A store, in the loop that `loop` gives from the first use on. `is_open` and `is_closed` may
    both be False: before."""

    def __init__(self, store: Store, config: BusConfig, loop: Callable[[], Backend]) -> None:
        self.store = store
        self.config = config
        self.counters = Counters()
        self.schemas = Schemas()
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
        """The store, opened if it was not.

        Raises:
            BusClosedError: the bus is closed. BusError: it cannot be opened. ConfigError: a
                setting is wrong.
        """
        if not self.is_open:
            if self.is_closed:
                raise self.closed_error()
            opening = self._opening
            if opening is None:
                opening = self._opening = Job(self.loop, self._changes)
            # In a task of its own: who asked first may be cancelled, and others wait.
            opening.start(self._open)
            await self._changes.until(lambda: not opening.running)
            self._require_open()
        return self.store

    def closed_error(self) -> BusClosedError:
        """What to raise once it is closed."""
        return BusClosedError(self.closed_because)

    async def close_store(self) -> None:
        """Close the store, if it was opened; for good."""
        self.is_closed = True
        if self._opening is not None:
            await self._opening.end()
            self.is_open = False
            await self.store.aclose()

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

    def _require_open(self) -> None:
        if self._error is not None:
            raise self._error
        if not self.is_open or self.is_closed:
            raise self.closed_error()
