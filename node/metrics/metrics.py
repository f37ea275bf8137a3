"""`Metrics`: the numbers of one node, counted always, and read when somebody asks.

What happens is counted where it happens, by adding to a plain number. What is a level (queues,
links, lag) is read of the parts themselves when asked for: they are `sources`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import Histogram, MetricFamily, family, labelled
from parley._node.protocol.codes import result_name

Source = Callable[[], Iterable[MetricFamily]]
Refresh = Callable[[], Awaitable[None]]

# Codes of one tally; an application may refuse with any number.
MOST_CODES: Final = 48
OTHER: Final = -4  # those beyond


class RequestTally:
    """Requests that are over: how many by code, and how long they took."""

    __slots__ = ("codes", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.seconds = Histogram()

    def add(self, code: int, took: float) -> None:
        """Count one, which took so many seconds."""
        codes = self.codes
        count = codes.get(code)
        if count is not None:
            codes[code] = count + 1
        elif len(codes) < MOST_CODES:
            codes[code] = 1
        else:
            codes[OTHER] = codes.get(OTHER, 0) + 1
        seconds = self.seconds  # by hand what `observe` does: it is done for each call
        seconds.counts[bisect_left(seconds.bounds, took)] += 1
        seconds.sum += took

    @property
    def by_label(self) -> Counter[str]:
        """How many by the label of their code."""
        labels: Counter[str] = Counter()
        for code, count in self.codes.items():
            labels[result_name(code)] += count
        return labels


class Metrics:
    """What a node tells of itself, as `Node.metrics`; asked in the node's own loop.

    There are no node ids in it, and names only where this node has registered them: nobody who
    connects can make it grow. Attributes are what is counted here, for the parts of the node.
    """

    __slots__ = (
        "_refreshes",
        "_sources",
        "_watchers",
        "ended",
        "handshake_seconds",
        "handshakes",
        "link_failures",
        "link_sessions",
        "made",
        "notes_received",
        "on_watched",
        "parted",
        "refused",
        "resumed",
        "tunnelled",
        "tunnels_dialled",
    )

    def __init__(self) -> None:
        self._sources: dict[Source, None] = {}
        self._refreshes: dict[Refresh, None] = {}
        self._watchers = 0
        self.on_watched: Callable[[], None] = lambda: None
        self.handshakes: Counter[tuple[str, ...]] = Counter()
        self.handshake_seconds = Histogram()
        self.ended: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()  # codes of the protocol
        self.made = RequestTally()
        self.parted = 0
        self.resumed = 0
        self.notes_received = 0
        self.link_sessions = 0
        self.link_failures = 0
        self.tunnels_dialled: Counter[int] = Counter()
        self.tunnelled = 0

    def __repr__(self) -> str:
        return f"<Metrics of {len(self._sources)} sources>"

    def add(self, source: Source, refresh: Refresh | None = None) -> Callable[[], None]:
        """Have `source` asked too, for families that no other has, until what is returned is
        called. `refresh` is awaited before, where something must be fetched that is then read."""
        self._sources[source] = None
        if refresh is not None:
            self._refreshes[refresh] = None

        def remove() -> None:
            self._sources.pop(source, None)
            if refresh is not None:
                self._refreshes.pop(refresh, None)

        return remove

    def collect(self) -> list[MetricFamily]:
        """All families with their samples, as they are now."""
        sources = (self._own, *self._sources)
        return [family for source in sources for family in source()]

    async def refresh(self) -> None:
        """Fetch what cannot be read at once, such as the lag of a bus; `collect` tells it then."""
        for refresh in list(self._refreshes):
            await refresh()

    @property
    def is_watched(self) -> bool:
        """Whether somebody reads it again and again, so that samples are worth taking."""
        return self._watchers > 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While it lasts somebody does."""
        self._watchers += 1
        self.on_watched()
        try:
            yield
        finally:
            self._watchers -= 1

    def _own(self) -> Iterable[MetricFamily]:
        def by_code(codes: Counter[int]) -> list[tuple[tuple[str, ...], float]]:
            return [((result_name(code),), count) for code, count in codes.items()]

        yield labelled(catalogue.HANDSHAKES, self.handshakes.items())
        yield family(catalogue.HANDSHAKE_TIME, self.handshake_seconds)
        yield labelled(
            catalogue.CONNECTIONS_ENDED, (((code,), n) for code, n in self.ended.items())
        )
        yield family(catalogue.SESSIONS_PARTED, self.parted)
        yield family(catalogue.SESSIONS_RESUMED, self.resumed)
        yield labelled(catalogue.REQUESTS_REFUSED, by_code(self.refused))
        made = self.made.by_label.items()
        yield labelled(catalogue.CALLS_MADE, (((code,), n) for code, n in made))
        yield family(catalogue.CALL_MADE_TIME, self.made.seconds)
        yield family(catalogue.NOTES_RECEIVED, self.notes_received)
        yield family(catalogue.LINK_SESSIONS, self.link_sessions)
        yield family(catalogue.LINK_FAILURES, self.link_failures)
        yield labelled(catalogue.TUNNELS_DIALLED, by_code(self.tunnels_dialled))
        yield family(catalogue.TUNNELLED, self.tunnelled)
