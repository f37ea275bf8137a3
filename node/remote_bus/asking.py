"""Asking another node's bus: the stream `bus`, requests on it, and what their answers say.

One rule: what cannot be known is said to be unknown: what is under way when the connection ends
raises BusUnavailableError, what is asked later BusClosedError. Knows no store.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from lbm.errors import LbmDecodeError
from node.bus.config import BusConfig
from node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusError,
    BusUnavailableError,
    InvalidEventError,
)
from node.errors import CallTimeout, PeerClosedError, StreamResetError
from node.protocol.codes import BUS, ResultCode
from node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from node.remote_bus import limits
from node.remote_bus import requests as wire
from node.remote_bus.answers import Answer, Row, decode_answer, read_rows
from node.remote_bus.codec import encode_request
from node.remote_bus.late import Late
from node.remote_bus.refusals import error_of, reset_error
from node.streams.stream import Stream

if TYPE_CHECKING:
    from node.peer.peer import Peer

T = TypeVar("T")

# Requests under way at a time: the other side counts those that were given up until it has
# answered them, so there are half as many as it takes.
UNANSWERED: Final = limits.REQUESTS // 2
# Reads and Historys that wait, on one connection, of as many as the other side takes.
WAITING: Final = limits.WAITING_READS
# Bytes of an id in an array, and of a request beside its names and ids.
_ID_SIZE: Final = limits.LONGEST_ID + 2
_HEAD_SIZE: Final = 64


class Asking:
    """Requests to the bus of `peer`, on one stream, which is opened again should it be reset."""

    def __init__(self, peer: "Peer", config: BusConfig) -> None:
        self._peer = peer
        self._config = config
        self._stream: Stream | None = None
        self._slots: anyio.Semaphore
        self._waits: anyio.Semaphore
        self._closed = True

    async def aclose(self) -> None:
        """Finish the stream: what waits ends with BusClosedError."""
        self._closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    def _begin(self) -> None:
        """Open the stream; raises BusClosedError if the connection is over, BusBusyError if it has
        as many streams as may be."""
        self._slots = anyio.Semaphore(UNANSWERED, fast_acquire=True)
        self._waits = anyio.Semaphore(WAITING, fast_acquire=True)
        self._closed = False
        self._open_stream()

    async def _ask(
        self, request: wire.Request, wait: float = 0.0, late: Late | None = None
    ) -> Answer:
        """The answer to a request, if its code is 0, or 21 for what is asked to be handed out;
        `late` gets the one that comes to who was cancelled."""
        if self._closed:
            raise BusClosedError("the bus is closed")
        if wait:
            async with self._waits:
                answer = await self._send(request, wait, late)
        else:
            async with self._slots:
                answer = await self._send(request, 0.0, late)
        if answer.code == ResultCode.ACCEPTED:
            return answer
        handed_out = isinstance(request, wire.Read | wire.Own | wire.Claim | wire.History)
        if answer.code == ResultCode.PAYLOAD_TOO_LARGE and handed_out:
            return answer
        raise error_of(answer)

    async def _send(self, request: wire.Request, wait: float, late: Late | None) -> Answer:
        stream = self._open_stream()
        number, payload = encode_request(request)
        timeout = self._config.timeout + wait
        unwanted = None if late is None else late.expected()
        try:
            event = await stream.request(
                BUS, number, payload=payload, timeout=timeout, unwanted=unwanted
            )
            return decode_answer(event.payload)
        except CallTimeout as error:
            raise BusUnavailableError(f"no answer in {timeout:g} s") from error
        except StreamResetError as error:
            self._forget(stream)
            raise reset_error(error) from error
        except PeerClosedError as error:
            self._forget(stream)
            raise BusUnavailableError(f"the connection ended: {error}") from error
        except PayloadTooLargeError as error:
            raise InvalidEventError(f"too much for the connection: {error}") from error
        except (anyio.ClosedResourceError, anyio.EndOfStream, LocalProtocolError) as error:
            if self._closed:
                raise BusClosedError("the bus is closed") from error
            self._forget(stream)
            raise BusUnavailableError("the other side answers nothing any more") from error
        except LbmDecodeError as error:
            raise unreadable() from error

    def _open_stream(self) -> Stream:
        if self._closed:
            raise BusClosedError("the bus is closed")
        if self._stream is None:
            try:
                self._stream = self._peer.streams.open_bus()
            except PeerClosedError as error:
                raise BusClosedError(f"the connection ended: {error}") from error
            except LocalProtocolError as error:
                raise BusBusyError(str(error)) from error
        return self._stream

    def _forget(self, stream: Stream) -> None:
        """It is over: the next request opens another one."""
        if self._stream is stream:
            self._stream = None

    async def _count(self, request: wire.Request) -> int:
        number = (await self._ask(request)).number
        if number is None:
            raise unreadable()
        return number

    async def _pages(
        self,
        page: Callable[[str], wire.Request],
        read: Callable[[Row], T],
        name: Callable[[T], str],
    ) -> list[T]:
        """All rows, a page at a time; `name` is what the next page comes after."""
        found: list[T] = []
        more = True
        while more:
            answer = await self._ask(page(name(found[-1]) if found else ""))
            rows = self._rows(answer, read)
            if found and rows and name(rows[0]) <= name(found[-1]):
                raise unreadable()
            found += rows
            more = answer.more and bool(rows)
            if len(found) > limits.LONGEST_LISTING:
                raise unreadable()
        return found

    def _rows(self, answer: Answer, read: Callable[[Row], T]) -> list[T]:
        try:
            return read_rows(answer.rows, read)
        except LbmDecodeError as error:
            raise unreadable() from error

    def _portions(self, ids: Sequence[str], *names: str) -> list[list[str]]:
        """The ids, as many at a time as a request may have and has room for."""
        room = self._peer.limits.max_payload - _HEAD_SIZE - sum(map(len, names))
        size = max(1, min(limits.LARGEST_COUNT, room // _ID_SIZE))
        return [list(ids[start : start + size]) for start in range(0, len(ids), size)]


def unreadable() -> BusError:
    """What to raise for an answer that says nothing."""
    return BusUnavailableError("the other side's answer cannot be read")
