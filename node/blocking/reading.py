"""What is read in a loop that awaits nothing: the notes of a topic, the items of an answer.

What came is taken over in the loop's thread, so that an interrupted reader loses none of it.
"""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Generic, Protocol, Self

import anyio

from parley._lbm.codec import Value
from parley._node.blocking.background import Background
from parley._node.data_types import D
from parley._node.messaging.topic_history import TopicPosition
from parley._node.peer.answer_stream import AnswerStream


class NoteSource(Protocol[D]):
    """A subscription of a peer or of a link; the names are those of `Subscription`."""

    data: Value
    headers: Mapping[str, Value]

    @property
    def dropped(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def recovered(self) -> bool: ...
    @property
    def gaps(self) -> int: ...
    @property
    def position(self) -> TopicPosition | None: ...

    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None: ...
    async def next_batch(self) -> list[D]: ...


class BlockingSubscription(Generic[D]):
    """The notes of a topic: `for note in sub`, until the publisher closes the topic. Made by
    `BlockingPeer.subscribe`, and subscribed to already.

    One thread may read at a time. `data` is what came with the acceptance, `headers` came with
    the last note.
    """

    def __init__(self, background: Background, source: NoteSource[D]) -> None:
        self._background = background
        self._source = source
        self._ready: deque[D] = deque()
        self._closed = False
        background.run(source.__aenter__)
        self.data = source.data

    @property
    def headers(self) -> Mapping[str, Value]:
        """The headers of the last note; empty if it had none."""
        return self._source.headers

    @property
    def dropped(self) -> int:
        """How many notes were lost because we did not keep up, as far as we were told."""
        return self._source.dropped

    @property
    def number(self) -> int:
        """The number of the last note that was read, as `Subscription.number`."""
        return max(0, self._source.number - len(self._ready))

    @property
    def recovered(self) -> bool:
        """As `Subscription.recovered`."""
        return self._source.recovered

    @property
    def gaps(self) -> int:
        """As `Subscription.gaps`."""
        return self._source.gaps

    @property
    def position(self) -> TopicPosition | None:
        """Where a later subscription goes on (`after=`), as `Subscription.position`: after the last
        note that came, read or not. What was not read can still be read here."""
        return self._source.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> D:
        """The next note; raises as `Subscription.__anext__`."""
        try:
            return self.get()
        except anyio.EndOfStream:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> D:
        """The next note, which may take `timeout` seconds; None: as long as it takes.

        Raises:
            TimeoutError: none came in time; the next one can be read later. EndOfStream: the
                publisher closed the topic. And what `Subscription.__anext__` raises.
        """
        if not self._ready:
            self._background.run(self._fetch, timeout)
        if not self._ready:
            raise anyio.EndOfStream
        return self._ready.popleft()

    def close(self) -> None:
        """Unsubscribe; again, it does nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if not self._closed and not self._background.is_closed:
            self._closed = True
            self._background.run(self._source.__aexit__, exc_type, exc_val, exc_tb)

    async def _fetch(self, timeout: float | None) -> None:
        with anyio.fail_after(timeout):
            self._ready.extend(await self._source.next_batch())


class BlockingAnswer(Generic[D]):
    """The items of a streamed answer: `for item in answer`. Made by `BlockingPeer.call_stream`;
    the call is made already, and closing it before the end cancels it.

    One thread may read at a time.
    """

    def __init__(self, background: Background, source: AnswerStream[D]) -> None:
        self._background = background
        self._source = source
        self._items: AsyncIterator[D] = source
        self._ready: deque[D] = deque()
        background.run(source.__aenter__)

    @property
    def result(self) -> Value:
        """What the final answer carried, once the items are at their end."""
        return self._source.result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> D:
        """The next item; raises as `AnswerStream.__anext__`."""
        if not self._ready:
            self._background.run(self._fetch)
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def close(self) -> None:
        """Want no more items; again, it does nothing."""
        if not self._background.is_closed:
            self._background.run(self._source.__aexit__, None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    async def _fetch(self) -> None:
        async for item in self._items:
            self._ready.append(item)
            break
