"""The client's side of a remote bus: the stream `bus`, with requests and answers.

A request in progress when the connection ends raises BusUnavailableError, because its outcome is
unknown. A later request raises BusClosedError.
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

# The most requests in progress. The server also counts abandoned requests until it has answered
# them, so this is half of the number that it accepts.
UNANSWERED: Final = limits.REQUESTS // 2
# The most waiting Reads and Historys of one connection, as many as the server accepts.
WAITING: Final = limits.WAITING_READS
# The size of an ID in an array, and of a request without its names and IDs.
_ID_SIZE: Final = limits.LONGEST_ID + 2
_HEAD_SIZE: Final = 64
# How long a cancellation waits for the answer, and for its events to be released, in seconds.
PATIENCE: Final = 2.0

_HANDS_OUT: Final = wire.Read | wire.Own | wire.Claim | wire.ReadHistory


class BusChannel:
    """Sends requests to the bus at the other end of a connection.

    They use one stream, which is reopened after a reset.
    """

    def __init__(self, live: LiveConnection, streams: StreamTable, timeout: float) -> None:
        """`timeout` is the time limit for each answer in seconds, beyond the request's own wait."""
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
            BusClosedError: the connection is closed.
            BusBusyError: the connection has the maximum number of streams.
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
        """Return the answer to a request.

        Its code is 0, or 21 for a request that returns events. If the caller is cancelled, the
        answer goes to `late`.

        Raises:
            BusError: the request was refused, or its outcome is unknown.
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
                raise InvalidEventError(f"cannot send this request: {error}") from error
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
        """Return the number in an answer. Raises the errors of `request`."""
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
        """Return the rows of all pages; raise the errors of `request`.

        `name` returns the position of a row, after which the next page begins.
        """
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
        """Split IDs into as many as fit into one request with `names`."""
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
        """Return the error to raise after the stream ended, so that the next request reopens it."""
        if self._stream is stream:
            self._stream = None
        if isinstance(error, StreamResetError):
            return reset_error(error)
        if isinstance(error, PeerClosedError):
            return BusUnavailableError(f"the connection ended: {error}")
        if self.closed:
            return BusClosedError("the bus is closed")
        return BusUnavailableError("the other node ended the stream of the bus")


_STREAM_ENDED: Final = (
    StreamResetError,
    PeerClosedError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    LocalError,
)


class LateAnswer:
    """The answer to a request whose caller was cancelled. Its events are released.

    The cancellation waits briefly for this, so that the next caller finds the events. Otherwise
    they are redelivered after their idle time.
    """

    __slots__ = ("_asked", "_payload", "_waiter")

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._asked = False
        self._payload: bytes | None = None

    def expected(self) -> Callable[[bytes], None]:
        """Note that the request is being sent, and return the function that accepts its answer."""
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
    return BusUnavailableError("the other node sent a malformed answer")
