"""Queues of events that wait to be written, one for each stream, served in turn (docs/protocol.md
section 8).

In its turn, a stream with credit sends one event, or a Batch of small ones, so that a bulk stream
doesn't delay a call. The queues contain unencrypted events. Events of stream 0 and Opens are
encrypted immediately into `WriteBuffer`. `Waker` notifies the driver of both.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from parley._node.protocol.codes import BATCH, DATA, STREAM
from parley._node.protocol.event import HEAD_SIZE, serialise_batch
from parley._node.protocol.flow_control import SendCredit
from parley._node.protocol.limits import BATCH_COUNT, BATCH_SIZE, EVENT_COST
from parley._node.protocol.memory_budget import FRAMES_WEIGHT, OUTGOING_WEIGHT, MemoryBudget


def _nobody() -> None:
    """Do nothing: without a driver, the caller polls for bytes."""


class Waker:
    """Calls `wake` when at least `count` events or `size` bytes are queued.

    The driver sets both: 0 while it is idle, the thresholds of an immediate flush while its next
    flush is due, and more than can be queued while it is working.
    """

    __slots__ = ("count", "size", "wake")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.wake: Callable[[], None] = _nobody

    def changed(self) -> None:
        """Wake an idle driver for something other than an event: frames, a report, or free space to
        read into.
        """
        if not self.count:
            self.wake()


# Events and Batches that are taken at a time.
TAKEN: Final = 64
# The longest payload in a Batch, in bytes. For longer payloads the overhead of an event is
# negligible.
SMALL_PAYLOAD: Final = 4_096


class OutgoingEvent:
    """An event to be written, with a payload of at least one byte.

    With `seal` it is signed immediately. A `cost` of 0 means that it needs no credit. `releases` is
    the stream that is held until this event is taken (0: none).
    """

    __slots__ = (
        "async_id",
        "category",
        "cost",
        "payload",
        "releases",
        "seal",
        "stream",
        "subcategory",
    )

    def __init__(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes | memoryview | bytearray,
        seal: bool = False,
        cost: int = 0,
        releases: int = 0,
    ) -> None:
        self.stream = stream
        self.async_id = async_id
        self.category = category
        self.subcategory = subcategory
        self.payload = payload
        self.seal = seal
        self.cost = cost
        self.releases = releases

    @property
    def head(self) -> tuple[int, int, int, int]:
        """Stream, async ID, category and subcategory."""
        return self.stream, self.async_id, self.category, self.subcategory


class _Queue:
    __slots__ = ("blocked", "credit", "events")

    def __init__(self, credit: SendCredit | None) -> None:
        self.events: deque[OutgoingEvent] = deque()
        self.credit = credit
        self.blocked = False


class SendQueue:
    """The queues of all streams, charged to `account`.

    `size` is the number of queued payload bytes, `count` the number of events. `turns` are the
    queues that may be written now, or whose credit must be checked. `batch_size` is the longest
    payload of a Batch. `credit_waits` counts how often a stream had no credit.
    """

    __slots__ = (
        "account",
        "batch_size",
        "count",
        "credit_waits",
        "held",
        "queues",
        "size",
        "turns",
        "waker",
    )

    def __init__(self, account: MemoryBudget) -> None:
        self.account = account
        self.queues: dict[int, _Queue] = {}  # the queues that are not empty
        self.turns: list[_Queue] = []
        self.held: dict[int, None] = {}
        self.count = 0
        self.size = 0
        self.credit_waits = 0
        self.batch_size = BATCH_SIZE
        self.waker = Waker()

    def __bool__(self) -> bool:
        """Whether events are queued, with credit or without."""
        return bool(self.queues)

    def put(self, event: OutgoingEvent, credit: SendCredit | None) -> None:
        """Queue an event; `credit` is its stream's credit, None for stream 1."""
        stream = event.stream
        queue = self.queues.get(stream)
        if queue is None:
            queue = self.queues[stream] = _Queue(credit)
            if stream in self.held:
                queue.blocked = True
            else:
                self.turns.append(queue)
        queue.events.append(event)
        size = len(event.payload)
        self.count += 1
        self.size += size
        self.account.charge(size + OUTGOING_WEIGHT)
        waker = self.waker
        if self.count >= waker.count or self.size >= waker.size:
            waker.wake()

    def extend(self, stream: int, data: bytes | memoryview, most: int) -> int:
        """Append `data` to the last queued Data of a stream if the result has at most `most` bytes.
        Return the length before, or 0 if the Data wasn't extended.
        """
        queue = self.queues.get(stream)
        if queue is None:
            return 0
        last, size = queue.events[-1], len(data)
        payload = last.payload
        before = len(payload)
        if (last.category, last.subcategory) != (STREAM, DATA) or before + size > most:
            return 0
        joined = payload if type(payload) is bytearray else bytearray(payload)
        joined += data
        last.payload = joined
        last.cost += size
        self.size += size
        self.account.charge(size)
        if self.size >= self.waker.size:
            self.waker.wake()
        return before

    def take(self, limit: int) -> list[OutgoingEvent]:
        """Return the next events whose streams have credit, and spend it. Returns at most 64 events
        and Batches, and stops when they cost `limit` bytes. An empty list means that no event may
        be written now.
        """
        turns, taken = self.turns, list[OutgoingEvent]()
        count, size = self.count, self.size
        while turns and len(taken) < TAKEN and size - self.size + EVENT_COST * len(taken) < limit:
            queue = turns.pop(0)
            events = queue.events
            event = events[0]
            cost, size_taken, releases = event.cost, len(event.payload), event.releases
            if cost and queue.credit is not None:
                if queue.credit.left <= 0:
                    queue.blocked = True
                    self.credit_waits += 1
                    continue
                queue.credit.left -= cost
            events.popleft()
            self.count -= 1
            self.size -= size_taken
            if events and size_taken <= SMALL_PAYLOAD and event.category > STREAM and not releases:
                event = self._batch_small_events(event, queue, limit - size + self.size)
                releases = event.releases
            if events:
                turns.append(queue)
            else:
                del self.queues[event.stream]
            taken.append(event)
            if releases:
                self.release(releases)
        if taken:
            self.account.release(size - self.size + OUTGOING_WEIGHT * (count - self.count))
        return taken

    def _batch_small_events(self, first: OutgoingEvent, queue: _Queue, room: int) -> OutgoingEvent:
        """Return a Batch of `first` and the small events behind it that have credit. It is up to
        `room` bytes longer and ends with an event that releases a stream. Return `first` if it is
        alone.
        """
        events, credit = queue.events, queue.credit
        room = min(room, self.batch_size - len(first.payload) - HEAD_SIZE)
        seal, releases = first.seal, first.releases
        run = [(first.async_id, first.category, first.subcategory, first.payload)]
        while events and len(run) < BATCH_COUNT and not releases:
            event = events[0]
            size, cost = len(event.payload), event.cost
            room -= size + HEAD_SIZE
            if room < 0 or size > SMALL_PAYLOAD or event.category <= STREAM:
                break
            if cost and credit is not None:
                if credit.left <= 0:
                    break
                credit.left -= cost
            events.popleft()
            self.count -= 1
            self.size -= size
            run.append((event.async_id, event.category, event.subcategory, event.payload))
            seal, releases = seal or event.seal, event.releases
        if len(run) == 1:
            return first
        return OutgoingEvent(
            first.stream, 0, STREAM, BATCH, serialise_batch(run), seal, 0, releases
        )

    def hold(self, stream: int) -> None:
        """Hold back `stream` until an event that releases it is taken."""
        self.held[stream] = None
        queue = self.queues.get(stream)
        if queue is not None and not queue.blocked:
            queue.blocked = True
            self.turns.remove(queue)

    def unblock(self, stream: int) -> bool:
        """Serve a stream that got credit; return whether it had queued events."""
        queue = self.queues.get(stream)
        if queue is None or not queue.blocked or stream in self.held:
            return False
        queue.blocked = False
        self.turns.append(queue)
        return True

    def waiting(self, stream: int) -> int:
        """Return the number of queued events of `stream`."""
        queue = self.queues.get(stream)
        return len(queue.events) if queue else 0

    def waiting_cost(self, stream: int) -> int:
        """Return the cost of the queued events of `stream`."""
        queue = self.queues.get(stream)
        return sum([event.cost for event in queue.events]) if queue else 0

    def own(self, stream: int) -> None:
        """Copy the queued views of a stream, because they keep larger buffers in memory."""
        queue = self.queues.get(stream)
        if queue is None:
            return
        for event in queue.events:
            if type(event.payload) is memoryview:
                event.payload = bytes(event.payload)

    def drop(self, stream: int) -> list[OutgoingEvent]:
        """Remove and return the events of a stream, and release it."""
        self.held.pop(stream, None)
        queue = self.queues.pop(stream, None)
        if queue is None:
            return []
        if not queue.blocked:
            self.turns.remove(queue)
        events = list(queue.events)
        queue.events.clear()
        self._took(len(events), sum(len(event.payload) for event in events))
        for event in events:
            if event.releases:
                self.release(event.releases)
        return events

    def clear(self) -> None:
        self.queues.clear()
        self.turns.clear()
        self.held.clear()
        self._took(self.count, self.size)

    def release(self, stream: int) -> None:
        """Stop holding a stream."""
        self.held.pop(stream, None)
        self.unblock(stream)
        self.waker.changed()

    def _took(self, count: int, size: int) -> None:
        self.count -= count
        self.size -= size
        self.account.release(size + OUTGOING_WEIGHT * count)


class WriteBuffer:
    """Frames that wait for the transport, charged to `account`."""

    __slots__ = ("_waker", "account", "frames", "size")

    def __init__(self, account: MemoryBudget, waker: Waker) -> None:
        self.account = account
        self._waker = waker
        self.frames: list[bytes] = []
        self.size = 0

    def write(self, frames: bytes) -> None:
        if frames:
            self.frames.append(frames)
            self.size += len(frames)
            self.account.charge(len(frames) + FRAMES_WEIGHT)
            self._waker.changed()

    def put_first(self, frames: bytes) -> None:
        if frames:
            self.frames.insert(0, frames)
            self.size += len(frames)
            self.account.charge(len(frames) + FRAMES_WEIGHT)

    def take(self) -> list[bytes]:
        """Remove and return all frames."""
        if not self.frames:
            return []
        frames, size = self.frames, self.size
        self.frames, self.size = [], 0
        self.account.release(size + FRAMES_WEIGHT * len(frames))
        return frames
