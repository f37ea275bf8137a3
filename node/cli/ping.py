"""`parley ping`: measure round trips to a node, and with `--watch` monitor the connection."""

import statistics
from collections import deque
from signal import Signals
from typing import Any, Final

import anyio

from parley._node.cli.exit_codes import InterruptedCommandError
from parley._node.cli.first_contact import connect, open_node
from parley._node.cli.link import open_link
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, pluralise
from parley._node.cli.run import run
from parley._node.cli.signals import run_until_signal
from parley._node.errors import ConfigError, PeerClosedError
from parley._node.peer.link import Link
from parley._node.peer.peer import Peer

COUNT: Final = 4
INTERVAL: Final = 0.2  # seconds
WATCH_INTERVAL: Final = 1.0
# A node sends at most 512 pings a second in the long run (docs/protocol.md section 14).
SHORTEST_INTERVAL: Final = 0.01
# Maximum number of round trips for the median.
REMEMBERED: Final = 100_000


def ping(
    options: NodeOptions,
    address: str,
    count: int | None,
    interval: float | None,
    watch: bool,
) -> None:
    if watch:
        pause = WATCH_INTERVAL if interval is None else interval
        if not pause >= SHORTEST_INTERVAL:
            raise ConfigError(
                f"cannot use --interval {pause:g} with --watch: it must be at least "
                f"{SHORTEST_INTERVAL:g} seconds"
            )

        async def watching(options: NodeOptions, out: Output) -> None:
            await _watched(options, ConnectionMonitor(out, count, pause), address)

        run(options, watching, handles_signals=True)
        return

    async def pinging(options: NodeOptions, out: Output) -> None:
        trips: list[float] = []
        wanted = count or COUNT
        async with connect(options, out, address) as peer:
            for number in range(1, wanted + 1):
                if trips:
                    await anyio.sleep(INTERVAL if interval is None else interval)
                trips.append(await peer.ping())
                _show(out, str(peer.node_id or address), number, trips[-1])
        median = statistics.median(trips)
        out.print(f"{pluralise(wanted, 'round trip')}: median {median * 1e3:.3f} ms")
        out.done(count=wanted, minimum=min(trips), median=median, maximum=max(trips))

    run(options, pinging)


def _show(out: Output, who: str, number: int, seconds: float) -> None:
    out.print(f"{out.petnames.beside(who)}: {seconds * 1e3:.3f} ms")
    out.event("pong", number=number, seconds=seconds)


async def _watched(options: NodeOptions, watch: "ConnectionMonitor", address: str) -> None:
    caught: Signals | None = None
    try:
        caught = await run_until_signal(watch.run, options, address)
    finally:
        watch.print_summary()
    if caught is not None and not watch.began:
        raise InterruptedCommandError(caught)
    watch.done(caught)


class ConnectionMonitor:
    """Shows round trips and the state of a connection. Round trips during which the connection was
    lost aren't counted.
    """

    def __init__(self, out: Output, count: int | None, interval: float) -> None:
        self.began = False
        self._out = out
        self._wanted = count
        self._interval = interval
        self.count = 0
        self.trips: deque[float] = deque(maxlen=REMEMBERED)
        self._minimum, self._maximum = float("inf"), 0.0
        self._suspended = self._resumed = self._sessions = 0
        self._number = 0  # how often this session was resumed, as far as reported
        self._away = 0.0  # seconds
        self._lost: float | None = None  # when the connection was lost; None while connected
        self._asked: float | None = None  # when the unanswered ping was sent

    async def run(self, options: NodeOptions, address: str) -> None:
        out = self._out
        async with (
            open_node(options, out, address) as node,
            open_link(node, options, out, address, self.report) as link,
        ):
            self.began = True
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._show_waiting)
                await self._ping(link, address)
                tasks.cancel_scope.cancel()

    async def _ping(self, link: Link, address: str) -> None:
        while True:
            peer = await link.ready()
            seconds = await self._trip(peer)
            if seconds is None:
                continue
            self.count += 1
            self.trips.append(seconds)
            self._minimum = min(self._minimum, seconds)
            self._maximum = max(self._maximum, seconds)
            _show(self._out, str(peer.node_id or address), self.count, seconds)
            if self.count == self._wanted:
                return
            await anyio.sleep(self._interval)

    async def _trip(self, peer: Peer) -> float | None:
        """Return the round-trip time; None if the connection was lost during the round trip."""
        resumes, self._asked = peer.resumes, anyio.current_time()
        try:
            seconds = await peer.ping()
        except PeerClosedError:
            return None
        finally:
            self._asked = None
        return seconds if peer.resumes == resumes else None

    async def _show_waiting(self) -> None:
        """Report regularly while no response arrives."""
        while True:
            await anyio.sleep(max(self._interval, WATCH_INTERVAL))
            since, what = self._lost, "connection"
            if since is None:
                since, what = self._asked, "answer"
            if since is None:
                continue
            seconds = anyio.current_time() - since
            if seconds >= WATCH_INTERVAL:
                self._out.print(f"no {what} for {seconds:.0f} s")
                self._out.event("waiting", what=what, seconds=seconds)

    async def report(self, text: str, kind: str, /, **fields: Any) -> None:
        """Show and count a change of the connection."""
        if kind in ("resumed", "connected"):
            self._lost = None
            self._away += fields["seconds"]
        elif self._lost is None:
            self._lost = anyio.current_time()
        if kind == "suspended":
            self._suspended += 1
        elif kind == "resumed":
            times, self._number = fields["number"] - self._number, fields["number"]
            self._resumed += times
            self._suspended += times - 1  # suspensions that were too short to be reported
            text = f"{text} (resumed {pluralise(self._resumed, 'time')})"
        elif kind == "connected":
            self._sessions += 1
            self._number = 0
        self._out.event(kind, **fields)
        self._out.print(text)

    def print_summary(self) -> None:
        """Print the summary for people, if a connection was made."""
        if not self.began:
            return
        if self._lost is not None:
            self._away += anyio.current_time() - self._lost
        trips = pluralise(self.count, "round trip")
        if self.trips:
            times = (self._minimum, statistics.median(self.trips), self._maximum)
            least, median, most = (f"{seconds * 1e3:.3f} ms" for seconds in times)
            trips += f": minimum {least}, median {median}, maximum {most}"
        self._out.print(trips)
        self._out.print(
            f"suspended {pluralise(self._suspended, 'time')}, "
            f"resumed {pluralise(self._resumed, 'time')}, "
            f"{pluralise(self._sessions, 'new session')}; away for {self._away:.1f} s"
        )

    def done(self, caught: Signals | None) -> None:
        self._out.done(
            count=self.count,
            minimum=self._minimum if self.trips else None,
            median=statistics.median(self.trips) if self.trips else None,
            maximum=self._maximum if self.trips else None,
            suspended=self._suspended,
            resumed=self._resumed,
            sessions=self._sessions,
            away=self._away,
            signal=None if caught is None else caught.name,
        )
