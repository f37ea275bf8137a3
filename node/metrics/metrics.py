"""The metrics of one node: counters, and sources that are read when metrics are collected."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import Histogram, MetricFamily, family, labelled
from parley._node.protocol.codes import result_name

Source = Callable[[], Iterable[MetricFamily]]
Refresh = Callable[[], Awaitable[None]]

# Maximum number of codes in one tally, because an application may reject requests with any code.
MOST_CODES: Final = 48
OTHER: Final = -4  # stands for all further codes


class RequestTally:
    """Finished requests by code, and their durations."""

    __slots__ = ("codes", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.seconds = Histogram()

    def add(self, code: int, took: float) -> None:
        codes = self.codes
        count = codes.get(code)
        if count is not None:
            codes[code] = count + 1
        elif len(codes) < MOST_CODES:
            codes[code] = 1
        else:
            codes[OTHER] = codes.get(OTHER, 0) + 1
        self.seconds.observe(took)

    @property
    def by_label(self) -> Counter[str]:
        labels: Counter[str] = Counter()
        for code, count in self.codes.items():
            labels[result_name(code)] += count
        return labels


class Metrics:
    """The metrics of a node (`Node.metrics`), collected in the node's event loop.

    Metrics don't contain node IDs, and contain only names that this node has registered, so that
    peers cannot make them grow. The attributes are counters.

    Example:

        families = {family.measure.name: family for family in node.metrics.collect()}
        print(families["connections"].samples)
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
        "refused",
        "resumed",
        "suspended",
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
        self.refused: Counter[int] = Counter()  # by protocol code
        self.made = RequestTally()
        self.suspended = 0
        self.resumed = 0
        self.notes_received = 0
        self.link_sessions = 0
        self.link_failures = 0
        self.tunnels_dialled: Counter[int] = Counter()
        self.tunnelled = 0

    def __repr__(self) -> str:
        return f"<Metrics of {len(self._sources)} sources>"

    def add(self, source: Source, refresh: Refresh | None = None) -> Callable[[], None]:
        """Also collect from `source`, until the returned function is called.

        `refresh` is awaited before a collection, to fetch data.
        """
        self._sources[source] = None
        if refresh is not None:
            self._refreshes[refresh] = None

        def remove() -> None:
            self._sources.pop(source, None)
            if refresh is not None:
                self._refreshes.pop(refresh, None)

        return remove

    def collect(self) -> list[MetricFamily]:
        """Return all families with their current samples."""
        sources = (self._own, *self._sources)
        return [family for source in sources for family in source()]

    async def refresh(self) -> None:
        """Fetch data that takes time to read, such as the lag of a bus."""
        for refresh in list(self._refreshes):
            await refresh()

    @property
    def is_watched(self) -> bool:
        """Whether the metrics are read repeatedly, so that sampling is useful."""
        return self._watchers > 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Mark the metrics as read repeatedly during the block."""
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
        yield family(catalogue.SESSIONS_SUSPENDED, self.suspended)
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
