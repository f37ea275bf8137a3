"""Actors of a simulation: each runs on one side of a connection and sends requests to the other.

All random values of a request are drawn before it starts, so that answers don't influence later
requests.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from parley._node.apps.simulate.offers import (
    ALERTS,
    FILES,
    NEWS,
    READING,
    TELEMETRY,
    TICKS,
    UNWANTED,
    Sleep,
)
from parley._node.apps.simulate.plan import Plan, SeededRandom
from parley._node.apps.simulate.tally import ACCEPTED, LATE, LOST, Tally
from parley._node.errors import CallRefused, CallTimeout, PeerClosedError, StreamResetError
from parley._node.handlers.topic import Topic
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import LocalError

# Calls per second on each side of a connection, at rate 1.
RATE: Final = 4.0
# Calls started at the same time, at most so many that others still fit (section 8).
_AT_ONCE: Final = 256
# Relative frequencies of the calls; `cancelled` is a report that the caller cancels.
_MIX: Final = {
    "kv.get": 44,
    "kv.put": 24,
    "search": 8,
    "orders.place": 10,
    "reports.build": 4,
    "cancelled": 3,
    "admin.reload": 3,
    "nowhere": 4,
}
_PLAIN: Final = ("kv.get", "kv.put")

Ask = Callable[[], Coroutine[Any, Any, None]]


class Caller:
    """Calls `peer` until the connection ends.

    With a fixed payload size it only makes `kv` calls, which take two events each.
    """

    def __init__(
        self, plan: Plan, peer: Peer, draws: SeededRandom, sleep: Sleep, tally: Tally
    ) -> None:
        self._plan = plan
        self._peer = peer
        self._draws = draws
        self._sleep = sleep
        self._tally = tally
        self._topics = list(_MIX if plan.payload is None else _PLAIN)
        self._weights = [_MIX[topic] for topic in self._topics]

    async def run(self, calls: TaskGroup) -> None:
        """Make calls at random times, at a high rate several at once; each is a task of `calls`."""
        rate = RATE * self._plan.rate
        at_once = max(1, min(_AT_ONCE, round(rate / 20)))
        while self._peer.is_open:
            await self._sleep(self._draws.pause(rate / at_once))
            for topic in self._draws.choices(self._topics, self._weights, k=at_once):
                calls.start_soon(self._call(topic))

    def _call(self, topic: str) -> Ask:
        draws, size = self._draws, self._plan.payload
        match topic:
            case "kv.get" | "kv.put":
                data = draws.payload(size)
                return lambda: self._counted(topic, self._peer.call(topic, data))
            case "search":
                wanted = {"items": draws.randint(1, 12), "size": draws.randint(16, 400)}
                return lambda: self._counted(topic, self._search(wanted))
            case "orders.place":
                order = {"amount": draws.randint(1, 100), "milliseconds": draws.randint(5, 120)}
                return lambda: self._counted(topic, self._peer.call(topic, order))
            case "reports.build" | "cancelled":
                report = {"milliseconds": draws.randint(300, 2_500)}
                patience = 0.2 if topic == "cancelled" else None
                return lambda: self._report(report, patience)
            case _:
                return lambda: self._counted(topic, self._peer.call(topic, None))

    async def _counted(self, topic: str, call: Awaitable[object]) -> None:
        outcome = LATE if self._peer.is_open else LOST
        try:
            await call
            outcome = ACCEPTED
        except CallTimeout:
            outcome = LATE
        except CallRefused as refused:
            outcome = LATE if refused.code == ResultCode.CANCELLED else str(refused.code)
        except PeerClosedError:
            outcome = LOST
        finally:
            # Count cancelled calls as well.
            self._tally.calls[topic, outcome] += 1

    async def _search(self, wanted: dict[str, int]) -> None:
        async with self._peer.call_stream("search", wanted, timeout=10.0) as hits:
            async for _ in hits:
                self._tally.chunks += 1

    async def _report(self, report: dict[str, int], patience: float | None) -> None:
        """Request a report, which takes long, with a deadline; or cancel it after `patience`
        seconds.
        """
        topic = "reports.build"
        if patience is None:
            await self._counted(topic, self._peer.call(topic, report, timeout=2.0))
            return

        async def give_up() -> None:
            await self._sleep(patience)
            waiting.cancel_scope.cancel()

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(give_up)
            await self._counted(topic, self._peer.call(topic, report))
            waiting.cancel_scope.cancel()


# Events per second on each side of a connection, at rate 1.
FILE_RATE: Final = 1 / 20
EVENT_RATE: Final = 0.4
READING_RATE: Final = 1.0
# Independent of the rate, because keys change with time and volume.
KEY_RATE: Final = 1 / 25
_PIECE: Final = 16 * 1024
_LARGEST_FILE: Final = 2**20


class StreamSender:
    """Sends files, events and key changes on one side of a connection."""

    def __init__(
        self, plan: Plan, peer: Peer, draws: SeededRandom, sleep: Sleep, tally: Tally
    ) -> None:
        self._plan = plan
        self._peer = peer
        self._draws = draws
        self._sleep = sleep
        self._tally = tally

    async def files(self) -> None:
        """Send files one after another; some are refused and some are cancelled."""
        draws = self._draws
        while self._peer.is_open:
            await self._sleep(draws.pause(FILE_RATE * self._plan.rate))
            size = min(_LARGEST_FILE, 1 + int(draws.lognormvariate(10.5, 1.3)))
            fate = draws.choices(("report", UNWANTED, "given-up"), (8, 1, 1))[0]
            try:
                await self._file(f"{FILES}{fate}-{draws.randint(1, 999)}", size, fate)
            except StreamResetError:
                self._tally.files["refused"] += 1
            except PeerClosedError:
                self._tally.files[LOST] += 1

    async def _file(self, label: str, size: int, fate: str) -> None:
        content = self._draws.randbytes(size)
        async with self._peer.open_stream(label) as stream:
            for start in range(0, size, _PIECE):
                await stream.send(content[start : start + _PIECE])
                if fate == "given-up" and start:
                    stream.reset()
                    self._tally.files["given-up"] += 1
                    return
            await stream.send_eof()
            await stream.receive()
        self._tally.files[ACCEPTED] += 1
        self._tally.file_bytes += size

    async def readings(self) -> None:
        """Send application events on a long-lived stream."""
        number = 0
        try:
            async with self._peer.open_stream(TELEMETRY) as stream:
                while True:
                    await self._sleep(self._draws.pause(READING_RATE * self._plan.rate))
                    number += 1
                    await stream.send_event(*READING, {"number": number, "celsius": 21.5})
                    self._tally.application_events += 1
        except (StreamResetError, PeerClosedError, anyio.ClosedResourceError):
            return

    async def events(self) -> None:
        """Emit named events: with one reply, several replies or none."""
        draws = self._draws
        while self._peer.is_open:
            await self._sleep(draws.pause(EVENT_RATE * self._plan.rate))
            name = draws.choices(("greet", "progress", "log", "unheard"), (5, 2, 3, 1))[0]
            try:
                await self._emit(name)
                self._tally.emits[name] += 1
            except (PeerClosedError, CallRefused):
                self._tally.emits[LOST] += 1

    async def _emit(self, name: str) -> None:
        peer = self._peer
        match name:
            case "greet":
                await peer.emit("greet", "everybody").reply()
            case "progress":
                async with peer.emit("progress", 7, namespace="jobs").replies() as replies:
                    async for _ in replies:
                        pass
            case "log":
                line = self._draws.payload(self._plan.payload)
                await peer.emit("log", {"line": line}, namespace="jobs", format="msgpack")
            case _:
                await peer.emit("unheard").reply()

    async def keys(self) -> None:
        """Update keys at random times, alone or together with the peer."""
        while self._peer.is_open:
            await self._sleep(self._draws.pause(KEY_RATE))
            try:
                if self._draws.once_in(3):
                    await self._peer.rekey()
                    self._tally.rekeys += 1
                else:
                    self._peer.update_keys()
                    self._tally.key_updates += 1
            except (PeerClosedError, LocalError):
                continue


# Publications per second of each topic, at rate 1.
RATES: Final = {TICKS: 3.0, NEWS: 0.5, ALERTS: 0.05}
# At a higher rate, each publication has more notes, so that there are at most so many.
_MOMENTS: Final = 20.0
# The number of notes published together, if the plan doesn't fix it: mostly one, rarely many.
_BURSTS: Final = (1, 1, 1, 1, 2, 3, 5, 8, 40)
# One in so many readers is slow: it sleeps between batches.
_SLOW: Final = 4
_NAP: Final = 4.0
# The smallest window with which a reader can make progress.
_NARROW: Final = 4 * 1024


class TopicPublisher:
    """Publishes on one topic of a node until cancelled."""

    def __init__(
        self, plan: Plan, topic: Topic, draws: SeededRandom, sleep: Sleep, tally: Tally
    ) -> None:
        self._plan = plan
        self._topic = topic
        self._draws = draws
        self._sleep = sleep
        self._tally = tally

    async def run(self) -> None:
        """Publish at the planned rate."""
        draws, topic, plan = self._draws, self._topic, self._plan
        wanted = RATES[topic.name] * plan.rate
        rate = min(wanted, _MOMENTS)
        times = max(1, round(wanted / rate))
        number = 0
        while True:
            await self._sleep(draws.pause(rate))
            for _ in range(times):
                count = plan.burst or draws.choice(_BURSTS)
                headers = {"severity": draws.randint(1, 5)} if topic.name == ALERTS else None
                for _ in range(count):
                    number += 1
                    note = {"number": number, "data": draws.payload(plan.payload)}
                    self._tally.published[topic.name] += 1
                    await topic.publish(note, headers)
                # Flush exactly the notes published together; they are sent in the next turn of the
                # loop.
                topic.flush()
                await checkpoint()


class TopicReader:
    """Reads one topic of `peer` until the connection ends.

    If the plan fixes the number of notes per publication, it reads without interruption.
    """

    def __init__(
        self, plan: Plan, name: str, peer: Peer, draws: SeededRandom, sleep: Sleep, tally: Tally
    ) -> None:
        self._plan = plan
        self._name = name
        self._peer = peer
        self._draws = draws
        self._sleep = sleep
        self._tally = tally

    async def run(self) -> None:
        """Subscribe, read, unsubscribe at random times, and resubscribe."""
        fixed = self._plan.burst is not None
        slow = self._draws.once_in(_SLOW) and not fixed
        try:
            while self._peer.is_open:
                count = self._draws.randint(200, 2_000)
                await self._read(2**62 if fixed else count, slow)
                await self._sleep(self._draws.uniform(0.5, 3.0))
        except (PeerClosedError, CallRefused):
            return

    async def _read(self, count: int, slow: bool) -> None:
        window = _NARROW if slow else None
        try:
            async with self._peer.subscribe(self._name, window=window) as notes:
                self._tally.subscriptions[self._name] += 1
                while count > 0 and (batch := await notes.next_batch()):
                    self._tally.received[self._name] += len(batch)
                    count -= len(batch)
                    if slow:
                        await self._sleep(_NAP)
        except StreamResetError as error:
            if error.code != CloseCode.SLOW_CONSUMER:
                raise
            self._tally.slow_resets[self._name] += 1
