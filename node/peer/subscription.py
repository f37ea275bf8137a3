"""`Subscription`: the notes that one peer publishes to a topic, for one reader.

Unread notes delay only their own subscription. Leaving its `async with` block unsubscribes; the
connection stays open.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self

import anyio

from parley._lbm.codec import Encodable, Value
from parley._lbm.errors import LbmDecodeError
from parley._node.data_types import D, DataType, Model
from parley._node.errors import (
    ConfigError,
    MalformedDataError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    received_refusal,
)
from parley._node.handlers.interceptors import Intercepted, Interceptors
from parley._node.messaging.inbox import NoteInbox, NumberedInbox
from parley._node.messaging.notes import NO_HEADERS, read_slow_text
from parley._node.messaging.outgoing_calls import OutgoingCall, OutgoingCalls
from parley._node.messaging.topic_history import TopicPosition, read_beginning
from parley._node.messaging.topics import Topics
from parley._node.protocol.codes import LOST, STREAMED, CloseCode, ResultCode
from parley._node.protocol.errors import ConnectionClosedError, LocalError
from parley._node.protocol.reports import StreamReset
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import Condition, wait_within

# How far a subscription can fall behind the fastest one, in windows of the shared stream.
MOST_BEHIND = 2
TOO_SLOW = "another subscription of this program reads this topic faster"


class SharedReader(Protocol):
    """A subscription that reads a shared stream."""

    inbox: NoteInbox

    def ended(self, reset: StreamReset | None) -> None:
        """Called when no more notes will arrive."""

    def lost(self, code: int, text: str) -> None:
        """Called when the connection has ended."""


class SharedStream:
    """Several subscriptions that read the same stream.

    `consume` returns credit to the publisher, as bytes of cost and a number of events. `window` is
    the window of the stream, in bytes of cost.
    """

    def __init__(
        self, stream: int, window: int, consume: Callable[[int, int], None], first: SharedReader
    ) -> None:
        self.first = first
        self._stream = stream
        self._most_behind = MOST_BEHIND * window
        self._consume = consume
        # The costs of received events whose credit has not been returned yet. At first, these are
        # the events that only the first subscription received.
        self._costs = first.inbox.unread_costs
        self._came, self._returned = sum(self._costs), 0
        # For each member, the cost of the events that it has read or never received.
        self._members = {first: 0}

    @property
    def inbox(self) -> Self:
        """Receive events in place of the inbox of a single subscription."""
        return self

    @property
    def closed(self) -> bool:
        """Whether all subscriptions have left."""
        return not self._members

    def add(self, member: SharedReader) -> None:
        """Add a subscription, which receives all later events."""
        self._members[member] = self._came
        # Otherwise the new subscription would wait for credit that depends on the reading of
        # others.
        self._progress()

    def remove(self, member: SharedReader) -> bool:
        """Remove a subscription; return whether others remain."""
        self._members.pop(member, None)
        if not self._members:
            self._return(self._came)
        return bool(self._members)

    def put(self, subcategory: int, payload: bytes, cost: int) -> bool:
        """Deliver an event to all subscriptions; False if it cost nothing and no inbox has
        capacity.
        """
        self._came += cost
        if cost:
            self._costs.append(cost)
        took = [member.inbox.put(subcategory, payload, cost) for member in list(self._members)]
        if not self._members:
            self._return(self._came)
            return True
        return any(took)

    def read(self, member: SharedReader, cost: int) -> None:
        """Record that a subscription has read events of this cost."""
        if member in self._members:
            self._members[member] += cost
            self._progress()

    def ended(self, reset: StreamReset | None) -> None:
        for member in list(self._members):
            member.ended(reset)

    def lost(self, code: int, text: str) -> None:
        for member in list(self._members):
            member.lost(code, text)

    def _progress(self) -> None:
        """Return credit for events that the fastest reader has read, and end readers that are too
        slow.
        """
        fastest = max(self._members.values())
        self._return(fastest)
        least = fastest - self._most_behind
        for slow in [one for one, read in self._members.items() if read < least]:
            del self._members[slow]
            slow.ended(StreamReset(self._stream, CloseCode.SLOW_CONSUMER, TOO_SLOW))

    def _return(self, upto: int) -> None:
        """Return the credit of all events up to this total cost."""
        cost = count = 0
        while count < len(self._costs) and self._returned + cost < upto:
            cost += self._costs[count]
            count += 1
        if count:
            del self._costs[:count]
            self._returned += cost
            self._consume(cost, count)


class Batches(Generic[D]):
    """An iterator over the batches of a subscription. Unlike a generator, it can be left at any
    time.
    """

    __slots__ = ("_next_batch",)

    def __init__(self, next_batch: Callable[[], Awaitable[list[D]]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[D]:
        """Return the next batch; raises the errors of reading the subscription."""
        batch = await self._next_batch()
        if not batch:
            raise StopAsyncIteration
        return batch


# What reading does with a note of another type: raise MalformedDataError, skip the note, or call a
# function with the note's data and the error and then skip it.
OnMalformed = Literal["raise", "skip"] | Callable[[Value, MalformedDataError], object]

# How many seconds leaving waits for the publisher to confirm.
LEAVE_TIMEOUT = 5.0


class Subscription(Generic[D]):
    """The notes of a topic, in order of publication.

    Made by `Peer.subscribe`. Enter it with `async with`, then iterate with `async for`; only one
    task can read at a time. Iteration ends when the publisher closes the topic.

    Attributes: data: the value that the publisher sent when it accepted the subscription. headers:
    the headers of the last note. malformed: how many notes were skipped because they don't match
    the type in `returns`.

    Example:

        async with peer.subscribe("news") as news:
            assert news.topic == "news"
    """

    def __init__(
        self,
        live: LiveConnection,
        outgoing: OutgoingCalls,
        topics: Topics,
        interceptors: Interceptors,
        topic: str,
        data: Encodable | Model,
        timeout: float | None,
        window: int | None,
        after: TopicPosition | None = None,
        kind: DataType[D] | None = None,
        on_malformed: OnMalformed = "raise",
    ) -> None:
        self.peer = live.remote
        self.malformed = 0
        self._on_malformed = checked_on_malformed(on_malformed)
        self._live = live
        self._outgoing = outgoing
        self._topics = topics
        self._interceptors = interceptors
        self.topic = topic
        self.data: Value = None
        self.headers: Mapping[str, Value] = NO_HEADERS
        self._changes = Condition(live.backend.waiter)
        self.inbox = NoteInbox(self._changes.notify, self._consume, live.core.account)
        self._numbered: NumberedInbox | None = None  # The same inbox, if the topic keeps a history.
        self._after = after
        self._asked = data
        self._kind = kind
        self._timeout = timeout
        self._window = window
        self._begun = False
        self._given_up = False  # Whether the caller stopped waiting before the answer arrived.
        self._shared: SharedStream | None = None
        self._stream = 0
        self._ready: list[Any] = []  # The notes of the last event, in reverse order.
        self._over = False
        self._error: StreamResetError | PeerClosedError | None = None
        self._lost_at_end = 0
        self._reading = anyio.ResourceGuard("reading from")

    @property
    def dropped(self) -> int:
        """How many notes were lost because they were read too slowly, as reported by the
        publisher.
        """
        return self.inbox.dropped

    @property
    def was_lost(self) -> bool:
        """Whether another subscription can continue where this one ended.

        True if the connection ended, or if the publisher sent Reset `going-away` because it lost
        its own source of the notes.
        """
        error = self._error
        return error is not None and (
            isinstance(error, PeerClosedError) or error.code == CloseCode.GOING_AWAY
        )

    @property
    def is_complete(self) -> bool:
        """Whether all notes have arrived: the publisher closed the topic, or the subscription was
        left.
        """
        return self._over and self._error is None

    # Of a topic that keeps a history.

    @property
    def number(self) -> int:
        """The number of the last note that was read, or of the note before the first one.

        A topic numbers its notes from 1 each time it starts. 0 if the topic keeps no history.
        """
        return 0 if self._numbered is None else self._numbered.number - len(self._ready)

    @property
    def recovered(self) -> bool:
        """Whether the subscription receives every note after the position given as `after`.

        False if the topic was restarted, keeps no history, or has already discarded some of these
        notes (`gaps` counts them).
        """
        return self._numbered is not None and self._numbered.recovered

    @property
    def gaps(self) -> int:
        """How many notes are missing before the last one that was read, according to their
        numbers.
        """
        return 0 if self._numbered is None else self._numbered.gaps

    @property
    def replaced(self) -> int:
        """How many notes were skipped because newer notes with the same key replaced them.

        Only topics that keep the newest note of each key (`keep_last_by=`) replace notes. Counts
        notes before the last one that was read.
        """
        return 0 if self._numbered is None else self._numbered.replaced

    @property
    def position(self) -> TopicPosition | None:
        """Where a later subscription can continue (`after=`), or None if the topic keeps no
        history.

        While the subscription is active, this is the last note that arrived, read or not; notes
        that arrived can still be read here, even after the connection has ended. After the
        subscription was left, it is the last note that was read.
        """
        if self._numbered is None:
            return None
        return self._numbered.position

    def __repr__(self) -> str:
        return f"<Subscription to {self.topic!r} of {self.peer}>"

    # Entering and leaving.

    async def __aenter__(self) -> Self:
        """Subscribe.

        Raises:
            SubscribeRefused: the publisher refused the subscription (code 3).
            CallRefused: another code, for example 1, the topic does not exist; 2, already
                subscribed; 20, not authorised.
            CallTimeout: no answer arrived in time.
            PeerClosedError: the connection has ended.
            LbmEncodeError: the data cannot be encoded.
            ValueError: `window` or `after` is invalid.
        """
        chain = self._interceptors.subscribe_out
        if not chain:
            await self._subscribe()
            return self

        async def proceed(one: Intercepted) -> Value:
            self._asked, self._timeout = one.data, one.timeout
            await self._subscribe()
            return self.data

        one = Intercepted(chain, self.peer, self.topic, self._asked, timeout=self._timeout)
        try:
            self.data = await chain.run(one, proceed)
        except BaseException:
            self._leave()
            raise
        if not self._begun:
            raise ParleyError(
                f"cannot subscribe to {self.topic!r}: an interceptor did not call proceed"
            )
        return self

    async def _subscribe(self) -> None:
        if self._begun:
            raise ParleyError(
                f"cannot enter the subscription to {self.topic!r} again; call subscribe again"
            )
        self._begun = True
        asked, changes, timeout = self._topics.asked, self._live.changes, self._timeout
        if self.topic in asked:
            # Whether this subscription can share a stream is known only after the first one was
            # accepted, refused or cancelled.
            timeout = await wait_within(
                lambda: changes.until(lambda: self.topic not in asked),
                timeout,
                self._live.backend.now,
            )
        if self._join():
            return
        asked[self.topic] = None
        try:
            await self._ask(timeout)
        finally:
            del asked[self.topic]
            changes.notify()

    async def _ask(self, timeout: float | None) -> None:
        """Send a Subscribe and wait for its answer."""
        live, outgoing = self._live, self._outgoing
        waiter, now = live.backend.waiter(), live.backend.now()
        try:
            call = outgoing.subscribe(
                self.topic,
                self._asked,
                now,
                timeout,
                waiter.wake,
                self._window,
                self._after,
            )
        except ConnectionClosedError as error:
            raise live.closed_error() from error
        self._topics.expect(self.topic, self._window)
        call.on_final = lambda code, stream: self._answered(call, code, stream)
        try:
            await waiter
        except BaseException:
            self._over = True
            if call.done:
                self._leave()
            else:
                self._give_up(call)
            raise
        self._require_accepted(call)
        self.data = call.data

    def _join(self) -> bool:
        """Share the stream of another subscription to this topic; return whether that is possible.

        It is not possible if the publisher answers each subscription individually, with data or
        with notes from its history.
        """
        reader = self._topics.reader_of(self.topic)
        first = reader.first if isinstance(reader, SharedStream) else reader
        if not isinstance(first, Subscription) or not first._is_shared_with(self):
            return False
        if not isinstance(reader, SharedStream):
            window = first._window or self._live.limits.stream_window
            reader = SharedStream(first._stream, window, first._return_credit, first)
            first._shared = reader
            self._topics.replace(self.topic, first._stream, reader)
        self._shared, self._stream = reader, first._stream
        reader.add(self)
        return True

    def _is_shared_with(self, other: "Subscription[Any]") -> bool:
        is_plain = self._numbered is None and self.data is None
        return is_plain and other._after is None and other._asked == self._asked

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        left = self._leave()
        if exc_type is not None or not left:
            return
        with anyio.move_on_after(LEAVE_TIMEOUT) as waiting:
            await self._changes.until(lambda: not self._topics.reads(self._stream))
        if waiting.cancelled_caught:
            self._topics.abandon(self._stream)

    async def over(self) -> None:
        """Wait until no more notes will arrive. Notes that have arrived can still be read."""
        self._require_begun()
        await self._changes.until(lambda: self._over)

    # Reading.

    def __aiter__(self) -> AsyncIterator[D]:
        return self

    async def __anext__(self) -> D:
        """Return the data of the next note.

        Raises:
            MalformedDataError: the note does not match the type; reading can continue with the
                next.
            StreamResetError: the subscription was lost; code 33 (slow-consumer) means that notes
                were read too slowly.
            PeerClosedError: the connection has ended.
            ClosedResourceError: the subscription was left.
            BusyResourceError: another task is reading.
        """
        while True:
            if not self._ready:
                await self._fill()
            if not self._ready:
                raise StopAsyncIteration
            note: D = await self._intercepted() if self._interceptors.note_in else self._ready.pop()
            if self._kind is None:
                return note
            try:
                return self._kind.read(note)
            except MalformedDataError as error:
                if not self._skips(note, error):
                    raise

    def batches(self) -> Batches[D]:
        """Iterate over the notes in batches: `async for notes in sub.batches()`.

        A batch is a list of 1 to 4,096 notes that arrived together. Raises the errors of `async
        for`.
        """
        return Batches(self.next_batch)

    async def next_batch(self) -> list[D]:
        """Return the next batch, or an empty list at the end. Raises the errors of `async for`.

        A note that doesn't match the type ends a batch early. If interceptors process notes, each
        batch has one note.
        """
        if not self._ready:
            await self._fill()
        if self._interceptors.note_in and self._ready:
            try:
                return [await self.__anext__()]
            except StopAsyncIteration:
                return []  # All remaining notes were skipped.
        if self._kind is not None:
            while self._ready:
                batch = self._of_kind(self._kind)
                if batch:
                    return batch
                await self._fill()  # All notes of this event were skipped.
            return []
        batch, self._ready = self._ready, []
        batch.reverse()
        return batch

    def _of_kind(self, kind: DataType[D]) -> list[D]:
        """Convert the notes that are ready, up to the first that does not match the type."""
        ready, batch = self._ready, list[D]()
        while ready:
            try:
                batch.append(kind.read(ready[-1]))
            except Exception as error:  # A model's own code can raise any exception.
                if isinstance(error, MalformedDataError) and self._skips(ready[-1], error):
                    ready.pop()
                    continue
                if batch:
                    break
                ready.pop()
                raise
            ready.pop()
        return batch

    def _skips(self, note: Any, error: MalformedDataError) -> bool:
        """Skip a note of the wrong type, unless the subscription raises an error for it."""
        if self._on_malformed == "raise":
            return False
        self.malformed += 1
        if self._on_malformed != "skip":
            self._on_malformed(note, error)
        return True

    async def _intercepted(self) -> D:
        """Return the next note after its interceptors have processed it.

        The note counts as read when they return or raise, but not if they were cancelled.
        """

        async def proceed(one: Intercepted) -> Any:
            return one.data

        chain, ready = self._interceptors.note_in, self._ready
        with self._reading:
            one = Intercepted(chain, self.peer, self.topic, ready[-1], self.headers)
            try:
                note: D = await chain.run(one, proceed)
            except Exception:
                del ready[-1:]  # The list can already be empty, if the subscription was left.
                raise
            del ready[-1:]
            return note

    async def _fill(self) -> None:
        """Fetch the notes of the next event; leaves `_ready` empty at the end."""
        if not self._begun:
            self._require_begun()
        inbox = self.inbox
        with self._reading:
            while True:
                inbox.used()
                while inbox.waiting:
                    notes, self.headers = inbox.take()
                    if notes:
                        self._live.metrics.notes_received += len(notes)
                        notes.reverse()
                        self._ready = notes
                        return
                    inbox.used()
                if inbox.closed:
                    raise anyio.ClosedResourceError(f"the subscription to {self.topic!r} was left")
                if self._error is not None:
                    inbox.dropped = max(inbox.dropped, self._lost_at_end)
                    raise self._error
                if self._over:
                    return
                await self._changes.wait()

    def _require_begun(self) -> None:
        if not self._begun:
            raise ParleyError(
                f"cannot read topic {self.topic!r}: the subscription isn't entered; "
                "use `async with peer.subscribe(..) as sub`"
            )

    # Called by the connection.

    def ended(self, reset: StreamReset | None) -> None:
        """Called when no more notes will arrive."""
        if reset is not None:
            self._error = StreamResetError(reset.code, reset.text)
            if reset.code == CloseCode.SLOW_CONSUMER:
                self._lost_at_end = read_slow_text(reset.text)
        self._over = True
        self._wake()

    def lost(self, code: int, text: str) -> None:
        """Called when the connection has ended; notes that arrived can still be read."""
        self._error = PeerClosedError(code, text)
        self._over = True
        self._wake()

    def _answered(self, call: OutgoingCall, code: int, stream: int) -> None:
        """Handle the final answer. Notes can follow it before the waiting task runs."""
        topics = self._topics
        wanted = not call.done and code == ResultCode.ACCEPTED and self._begin(call)
        if wanted and topics.read(self.topic, stream, self, self._window):
            self._stream = stream
        topics.expect_no_more(self.topic, stream, given_up=self._given_up)

    def _give_up(self, call: OutgoingCall) -> None:
        """Stop waiting for the answer."""
        self._given_up = True
        self._outgoing.cancel(call)
        if self._topics.abandon_subscribe(self.topic):
            now = self._live.backend.now()
            with suppress(LocalError):  # The connection is closing.
                self._outgoing.unsubscribe(self.topic, now, LEAVE_TIMEOUT, lambda: None)

    def _begin(self, call: OutgoingCall) -> bool:
        """Read from the Result where the notes begin; return False if it is malformed."""
        try:
            begins = read_beginning(call.cells)
        except LbmDecodeError:
            return False
        if begins is not None:
            account = self._live.core.account
            self._numbered = NumberedInbox(self._wake, self._consume, account, begins, self._after)
            self.inbox = self._numbered
        return True

    def _require_accepted(self, call: OutgoingCall) -> None:
        if self._stream:
            return
        self._over = True
        if call.code == LOST:
            raise PeerClosedError(call.close_code, call.close_text)
        # Accepted without a stream, or answered with Chunks.
        if call.code in (
            ResultCode.ACCEPTED,
            STREAMED,
        ):
            raise received_refusal(ResultCode.MALFORMED, None, subscribing=True)
        raise received_refusal(call.code, call.data, subscribing=True)

    def _leave(self) -> bool:
        """Unsubscribe; return whether the publisher has still to confirm."""
        if self.inbox.closed:
            return False
        others = self._shared is not None and self._shared.remove(self)
        self.inbox.close()
        if self._numbered is not None:
            # Unread notes don't count, because they will never be read.
            self._numbered.number = self.number
        self._ready.clear()
        self._over = True
        self._wake()
        if others or not self._topics.reads(self._stream):
            return False
        try:
            self._outgoing.unsubscribe(
                self.topic, self._live.backend.now(), LEAVE_TIMEOUT, self._wake
            )
        except LocalError:
            self._topics.abandon(self._stream)
        else:
            self._topics.leave(self._stream)
        return self._topics.reads(self._stream)

    def _consume(self, cost: int, count: int) -> None:
        if self._shared is None:
            self._live.core.consume(self._stream, cost, count)
        else:
            self._shared.read(self, cost)

    def _return_credit(self, cost: int, count: int) -> None:
        self._live.core.consume(self._stream, cost, count)

    def _wake(self) -> None:
        self._changes.notify()


def checked_on_malformed(given: Any) -> OnMalformed:
    """Return the option `on_malformed`; raise ConfigError if it is invalid."""
    if given in ("raise", "skip"):
        option: OnMalformed = given
        return option
    if not callable(given):
        raise ConfigError(f"invalid on_malformed {given!r}: expected 'raise', 'skip' or a function")
    return require_callable(given, "on_malformed=", "note", "error", plain=True)
