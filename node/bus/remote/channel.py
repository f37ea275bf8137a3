"""The client's side of a remote bus: the stream `bus`, requests and answers.

A request in progress when the connection ends raises BusUnavailableError, since its outcome is
unknown; a later one raises BusClosedError.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import anyio

from parley._lbm.errors import LbmDecodeError
from parley._node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusError,
    BusUnavailableError,
    InvalidEventError,
)
from parley._node.bus.remote import limits
from parley._node.bus.remote import messages as wire
from parley._node.bus.remote.messages import (
    Answer,
    Row,
    decode_answer,
    error_of,
    read_delivery,
    read_rows,
    reset_error,
)
from parley._node.errors import CallTimeout, PeerClosedError, StreamResetError
from parley._node.protocol.codes import BUS, ResultCode
from parley._node.protocol.errors import LocalError, PayloadTooLargeError
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream import Stream
from parley._node.remote.stream_table import StreamTable
from parley._node.transport.loop import Waiter

T = TypeVar("T")

# Requests under way at a time: the other side counts those that were given up until it has
# answered them, so there are half as many as it takes.
UNANSWERED: Final = limits.REQUESTS // 2
# Reads and Historys that wait, on one connection, of as many as the other side takes.
WAITING: Final = limits.WAITING_READS
# Bytes of an id in an array, and of a request beside its names and ids.
_ID_SIZE: Final = limits.LONGEST_ID + 2
_HEAD_SIZE: Final = 64
# Seconds that a cancellation waits for the answer, and for what it holds to be given back.
PATIENCE: Final = 2.0

_HANDS_OUT: Final = wire.Read | wire.Own | wire.Claim | wire.ReadHistory


class BusChannel:
    """Requests to the bus at the other end of a connection, on one stream, which is reopened after
    a reset."""

    def __init__(self, live: LiveConnection, streams: StreamTable, timeout: float) -> None:
        """`timeout` is seconds for each answer, in addition to the request's own wait."""
        self._live = live
        self._streams = streams
        self.closed = True
        self._timeout = timeout
        self._stream: Stream | None = None
        self._slots: anyio.Semaphore
        self._waits: anyio.Semaphore

    def open(self) -> None:
        """Open the stream.

        Raises:
            BusClosedError: the connection is closed. BusBusyError: it has the maximum number of
                streams.
        """
        self._slots = anyio.Semaphore(UNANSWERED, fast_acquire=True)
        self._waits = anyio.Semaphore(WAITING, fast_acquire=True)
        self.closed = False
        self._open_stream()

    async def aclose(self) -> None:
        """Finish the stream: waiting requests raise BusClosedError."""
        self.closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    async def request(
        self, request: wire.Request, wait: float = 0.0, late: "LateAnswer | None" = None
    ) -> Answer:
        """Return the answer if its code is 0, or 21 for a request that hands out events. `late`
        gets the answer if the caller is cancelled.

        Raises:
            BusError: it was refused, or the outcome is unknown.
        """
        if self.closed:
            raise BusClosedError("the bus is closed")
        async with self._waits if wait else self._slots:
            stream = self._stream or self._open_stream()
            number, payload = wire.encode_request(request)
            timeout = self._timeout + wait
            unwanted = None if late is None else late.expected()
            try:
                event = await stream.request(
                    BUS, number, payload=payload, timeout=timeout, unwanted=unwanted
                )
                answer = decode_answer(event.payload)
            except CallTimeout as error:
                raise BusUnavailableError(f"no answer in {timeout:g} s") from error
            except PayloadTooLargeError as error:
                raise InvalidEventError(f"too much for the connection: {error}") from error
            except LbmDecodeError as error:
                raise unreadable() from error
            except _STREAM_ENDED as error:
                raise self._ended(stream, error) from error
        if answer.code == ResultCode.ACCEPTED:
            return answer
        if answer.code == ResultCode.PAYLOAD_TOO_LARGE and isinstance(request, _HANDS_OUT):
            return answer
        raise error_of(answer)

    async def count(self, request: wire.Request) -> int:
        """Return the number in an answer; raises as `request`."""
        number = (await self.request(request)).number
        if number is None:
            raise unreadable()
        return number

    async def pages(
        self,
        page: Callable[[str], wire.Request],
        read: Callable[[Row], T],
        name: Callable[[T], str],
    ) -> list[T]:
        """Return the rows of all pages; `name` gives the position of the next page. Raises as
        `request`."""
        found: list[T] = []
        more = True
        while more:
            answer = await self.request(page(name(found[-1]) if found else ""))
            rows = rows_of(answer, read)
            if found and rows and name(rows[0]) <= name(found[-1]):
                raise unreadable()
            found += rows
            more = answer.more and bool(rows)
            if len(found) > limits.LONGEST_LISTING:
                raise unreadable()
        return found

    def portions(self, ids: Sequence[str], *names: str) -> list[list[str]]:
        """Split ids into as many as fit into a request with `names`."""
        room = self._live.limits.max_payload - _HEAD_SIZE - sum(map(len, names))
        size = max(1, min(limits.LARGEST_COUNT, room // _ID_SIZE))
        return [list(ids[start : start + size]) for start in range(0, len(ids), size)]

    def _open_stream(self) -> Stream:
        if self.closed:
            raise BusClosedError("the bus is closed")
        if self._stream is None:
            try:
                self._stream = self._streams.open_bus()
            except PeerClosedError as error:
                raise BusClosedError(f"the connection ended: {error}") from error
            except LocalError as error:
                raise BusBusyError(str(error)) from error
        return self._stream

    def _ended(self, stream: Stream, error: Exception) -> BusError:
        """Return the error to raise after the end of the stream; the next request opens another."""
        if self._stream is stream:
            self._stream = None
        if isinstance(error, StreamResetError):
            return reset_error(error)
        if isinstance(error, PeerClosedError):
            return BusUnavailableError(f"the connection ended: {error}")
        if self.closed:
            return BusClosedError("the bus is closed")
        return BusUnavailableError("the other side answers nothing any more")


_STREAM_ENDED: Final = (
    StreamResetError,
    PeerClosedError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    LocalError,
)


class LateAnswer:
    """The answer to a request whose caller was cancelled: its events are given back.

    The cancellation waits for that, briefly, so that the next caller finds the events. Otherwise
    they are redelivered after they were idle.
    """

    __slots__ = ("_asked", "_payload", "_waiter")

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._asked = False
        self._payload: bytes | None = None

    def expected(self) -> Callable[[bytes], None]:
        """Return the function that takes the answer: the request is being sent."""
        self._asked = True
        return self._take

    async def give_back(
        self, channel: BusChannel, request: wire.Read | wire.Own | wire.Claim
    ) -> None:
        """Wait for the answer, and release its events."""
        if not self._asked:
            return
        with anyio.move_on_after(PATIENCE, shield=True), suppress(BusError, LbmDecodeError):
            if self._payload is None:
                await self._waiter
            answer = decode_answer(self._payload or b"")
            ids = [one.event.id for one in read_rows(answer.rows, read_delivery)]
            for some in channel.portions(ids, request.name, request.group, request.consumer):
                await channel.request(
                    wire.Release(request.name, request.group, request.consumer, some)
                )

    def _take(self, payload: bytes) -> None:
        self._payload = payload
        self._waiter.wake()


def rows_of(answer: Answer, read: Callable[[Row], T]) -> list[T]:
    """Parse the rows of an answer; raise BusUnavailableError if they are malformed."""
    try:
        return read_rows(answer.rows, read)
    except LbmDecodeError as error:
        raise unreadable() from error


def unreadable() -> BusError:
    return BusUnavailableError("the other side's answer cannot be read")
