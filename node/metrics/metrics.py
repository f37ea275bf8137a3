"""`Metrics`: the numbers of one node, counted always, and read when somebody asks.

What happens is counted where it happens, by adding to a plain number. What is a level (queues,
links, peers, lag) is read of the parts themselves when asked for: they are `sources`.
"""

from collections.abc import Awaitable, Callable, Iterable

from node.metrics.families import Family

Source = Callable[[], Iterable[Family]]
Refresh = Callable[[], Awaitable[None]]


class Metrics:
    """What a node tells of itself, as `Node.metrics`.

    Only the node's own loop may ask. There are no node ids in it, and names of topics only where
    this node has registered them: nobody who connects can make it grow.
    """

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._refreshes: list[Refresh] = []

    def add(self, source: Source, refresh: Refresh | None = None) -> None:
        """Have `source` asked too, for families that no other has. `refresh` is awaited before,
        where something must be fetched that is then read."""
        self._sources.append(source)
        if refresh is not None:
            self._refreshes.append(refresh)

    def collect(self) -> list[Family]:
        """All families with their samples, as they are now; in the order of their sources."""
        return [family for source in self._sources for family in source()]

    async def refresh(self) -> None:
        """Fetch what cannot be read at once, such as the lag of a bus; `collect` tells it then."""
        for refresh in self._refreshes:
            await refresh()
