"""Room to write on one stream: senders wait here while much waits to be written.

First come, first served, and nothing else runs between `wait` and what its caller then queues.
While more waits for the peer than may, only what can be written at once is queued.
"""

from collections.abc import Callable

import anyio

from parley._node.protocol.errors import LocalProtocolError
from parley._node.remote.live import LiveConnection
from parley._node.transport.loop import Waiter

# Events of a stream that may wait before its senders do; of small ones a turn's worth, since
# each turn of the loop costs as much as sending several (64 requests in flight: 4,200/s with
# 4 at a time).
WAITING_EVENTS = 4
WAITING_SMALL_EVENTS = 64
SMALL_EVENTS_SIZE = 32 * 1024
# Events of a stream before others run: a reader that names a great window and reads as fast
# as we write would keep the loop for itself.
TURN = 16


class StreamRoom:
    """The room of a stream. `check` raises once nothing may be sent any more."""

    __slots__ = ("_check", "_live", "_queued", "_since", "_stream", "_turn", "_writer")

    def __init__(self, live: LiveConnection, stream: int, check: Callable[[], None]) -> None:
        self._live = live
        self._stream = stream
        self._check = check
        self._queued = 0  # bytes since nothing waited
        self._since = 0  # events since others ran
        # Made by the first sender that waits: streams are opened in callbacks of the event loop,
        # where anyio does not know which loop is running.
        self._turn: anyio.Lock | None = None
        self._writer: Waiter | None = None

    @property
    def is_free(self) -> bool:
        """Whether a sender would not have to wait."""
        return not self.has_waiting and self._has_room()

    @property
    def has_waiting(self) -> bool:
        """Whether a sender waits."""
        return self._turn is not None and self._turn.locked()

    async def wait(self) -> None:
        """Return when one event may be queued; raises what `check` does."""
        self._since += 1
        if self._since > TURN:
            self._since = 0
            await anyio.lowlevel.checkpoint()
        if self.is_free:
            self._check()
            return
        core = self._live.core
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            while True:
                self._check()
                if self._has_room():
                    return
                self._writer = waiter = self._live.backend.waiter()
                try:
                    if self._is_clear():
                        await self._live.driver.rooms.wait(waiter)
                    else:
                        core.notify_writable(self._stream, credit=True)
                        await waiter.wait()
                except LocalProtocolError as error:
                    raise self._live.closed_error() from error
                finally:
                    self._writer = None

    def took(self, size: int) -> None:
        """An event of `size` bytes was queued."""
        self._queued += size

    def changed(self) -> None:
        """There is room, or nothing may be sent any more."""
        if self._writer is not None:
            self._writer.wake()

    def _is_clear(self) -> bool:
        """Whether an event of the stream would wait for nothing but the transport."""
        core = self._live.core
        return not core.outbox.waiting(self._stream) and core.has_credit(self._stream)

    def _has_room(self) -> bool:
        waiting = self._live.core.outbox.waiting(self._stream)
        if not waiting:
            self._queued = 0
        if self._live.driver.is_full:
            # Streams without credit must not add up, however many there are.
            return self._is_clear() and self._live.driver.has_room
        if waiting < WAITING_EVENTS:
            return True
        return waiting < WAITING_SMALL_EVENTS and self._queued < SMALL_EVENTS_SIZE
