"""`Subscription`: a topic of a peer, as its subscriber reads it.

Notes that are not read slow only their subscription. It ends with its `async with`: the publisher
is told, and the connection stays as it was.
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

# Windows of the stream by which a subscription can be behind the fastest.
MOST_BEHIND = 2
TOO_SLOW = "another subscription of this program reads this topic faster"


class SharedReader(Protocol):
    """A subscription that reads a shared stream."""

    inbox: NoteInbox

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes will come."""

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""


class SharedStream:
    """The subscriptions that read the stream `stream`. `consume` returns credit, as bytes of cost
    and a number of events; `window` is the stream's, in bytes of cost."""

    def __init__(
        self, stream: int, window: int, consume: Callable[[int, int], None], first: SharedReader
    ) -> None:
        self.first = first
        self._stream = stream
        self._most_behind = MOST_BEHIND * window
        self._consume = consume
        # The costs of events that came and for which no credit was returned. At first these are
        # the ones that the first subscription alone got.
        self._costs = first.inbox.unread_costs
        self._came, self._returned = sum(self._costs), 0
        self._members = {first: 0}  # the cost of what each has read, or not got

    @property
    def inbox(self) -> Self:
        """Takes what comes, in place of one subscription's inbox."""
        return self

    @property
    def closed(self) -> bool:
        """Whether no subscription reads it any longer."""
        return not self._members

    def add(self, member: SharedReader) -> None:
        """Give a subscription all that comes from now on."""
        self._members[member] = self._came
        # Else it would wait for credit that depends on what others read.
        self._progress()

    def remove(self, member: SharedReader) -> bool:
        """Give a subscription nothing more; returns whether others read on."""
        self._members.pop(member, None)
        if not self._members:
            self._return(self._came)
        return bool(self._members)

    def put(self, subcategory: int, payload: bytes, cost: int) -> bool:
        """Give an event to all; False if there is no room for one that cost nothing."""
        self._came += cost
        if cost:
            self._costs.append(cost)
        took = [member.inbox.put(subcategory, payload, cost) for member in list(self._members)]
        if not self._members:
            self._return(self._came)
            return True
        return any(took)

    def read(self, member: SharedReader, cost: int) -> None:
        """A subscription has read events of this cost."""
        if member in self._members:
            self._members[member] += cost
            self._progress()

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes will come."""
        for member in list(self._members):
            member.ended(reset)

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""
        for member in list(self._members):
            member.lost(code, text)

    def _progress(self) -> None:
        """Return credit for what the fastest has read, and end those that are too slow."""
        fastest = max(self._members.values())
        self._return(fastest)
        least = fastest - self._most_behind
        for slow in [one for one, read in self._members.items() if read < least]:
            del self._members[slow]
            slow.ended(StreamReset(self._stream, CloseCode.SLOW_CONSUMER, TOO_SLOW))

    def _return(self, upto: int) -> None:
        """Return the credit of all events up to this sum of costs."""
        cost = count = 0
        while count < len(self._costs) and self._returned + cost < upto:
            cost += self._costs[count]
            count += 1
        if count:
            del self._costs[:count]
            self._returned += cost
            self._consume(cost, count)


class Batches(Generic[D]):
    """The batches of a subscription, each by `next_batch`. Not a generator: a reader may stop
    early."""

    __slots__ = ("_next_batch",)

    def __init__(self, next_batch: Callable[[], Awaitable[list[D]]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[D]:
        """Raises as reading the subscription does."""
        batch = await self._next_batch()
        if not batch:
            raise StopAsyncIteration
        return batch


# What reading does with a note that is not of the type: raise MalformedDataError, skip the note, or
# call a function with the note's data and the error, then skip it.
OnMalformed = Literal["raise", "skip"] | Callable[[Value, MalformedDataError], object]

# Seconds that leaving waits for the publisher to have understood.
LEAVE_TIMEOUT = 5.0


class Subscription(Generic[D]):
    """The notes of a topic, in their order: `async with peer.subscribe("prices") as sub`,
    then `async for note in sub`. One task may read at a time.

    `data` is what came with the acceptance, `headers` came with the last note. The end
    of the notes is the publisher's: it closed the topic. Made with `returns`, each note
    is of that type; `malformed` counts the notes that were skipped because they are not.
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
        self._numbered: NumberedInbox | None = None  # the same, of a topic that remembers
        self._after = after
        self._asked = data
        self._kind = kind
        self._timeout = timeout
        self._window = window
        self._begun = False
        self._given_up = False  # before it was answered
        self._shared: SharedStream | None = None
        self._stream = 0
        self._ready: list[Any] = []  # notes of the last event, the next one at the end
        self._over = False
        self._error: StreamResetError | PeerClosedError | None = None
        self._lost_at_end = 0
        self._reading = anyio.ResourceGuard("reading from")

    @property
    def dropped(self) -> int:
        """How many notes were lost because we did not keep up, as far as we were told."""
        return self.inbox.dropped

    @property
    def was_lost(self) -> bool:
        """Whether another subscription may go on where this one ended: with its connection, or by
        Reset `going-away`, since the publisher has lost those from whom it has the notes."""
        error = self._error
        return error is not None and (
            isinstance(error, PeerClosedError) or error.code == CloseCode.GOING_AWAY
        )

    @property
    def is_complete(self) -> bool:
        """Whether nothing follows the notes that came, though the connection lives: the publisher
        has ended it, or it was left."""
        return self._over and self._error is None

    # Of a topic that remembers.

    @property
    def number(self) -> int:
        """The number of the last note that was read, or of the one before the first; 0 if the
        topic does not remember. Notes are numbered from 1 with each start of the topic."""
        return 0 if self._numbered is None else self._numbered.number - len(self._ready)

    @property
    def recovered(self) -> bool:
        """Whether every note after the position of `after` comes. If not, the topic was started
        anew, does not remember, or has forgotten some: those are counted in `gaps`."""
        return self._numbered is not None and self._numbered.recovered

    @property
    def gaps(self) -> int:
        """How many notes are missing before the last one that was read, by their numbers."""
        return 0 if self._numbered is None else self._numbered.gaps

    @property
    def replaced(self) -> int:
        """How many notes before the last one that was read did not come, because the topic keeps
        the newest note of each key (`keep_last_by=`) and later notes replaced them."""
        return 0 if self._numbered is None else self._numbered.replaced

    @property
    def position(self) -> TopicPosition | None:
        """Where a later subscription goes on (`after=`): after the last note that came, read or
        not; once this one was left, after the last that was read. None if the topic does not
        remember.

        What came and was not read stays to be read here, also when the connection is over.
        """
        if self._numbered is None:
            return None
        return self._numbered.position

    def __repr__(self) -> str:
        return f"<Subscription to {self.topic!r} of {self.peer}>"

    # Beginning and end.

    async def __aenter__(self) -> Self:
        """Subscribe.

        Raises:
            SubscribeRefused: the publisher said no (code 3).
            CallRefused: another code: 1 no such topic, 2 subscribed already, 20 not authorised, ...
            CallTimeout: no answer in time.
            PeerClosedError: the connection is over.
            LbmEncodeError: the data has no encoding.
            ValueError: `window` or `after` cannot be.
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
                f"not subscribed to {self.topic!r}: an interceptor did not call proceed"
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
            # Whether this one can join is known once the other is accepted, refused or cancelled.
            timeout = await wait_within(
                lambda: changes.until(lambda: self.topic not in asked),
                timeout,
                self._live.backend.now,
            )
        if self._join():
            return
        asked.add(self.topic)
        try:
            await self._ask(timeout)
        finally:
            asked.discard(self.topic)
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
        """Read along with another subscription of this topic; returns whether that is possible: not
        where the publisher answers each one by itself, with data or with notes that it remembers.
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
        """Wait until no more notes will come; those that came may still be read."""
        self._require_begun()
        await self._changes.until(lambda: self._over)

    # Reading.

    def __aiter__(self) -> AsyncIterator[D]:
        return self

    async def __anext__(self) -> D:
        """The data of the next note.

        Raises:
            MalformedDataError: it is not of the type; the next one can be read.
            StreamResetError: the subscription was lost; code 33, slow-consumer, means that we did
                not keep up.
            PeerClosedError: the connection is over.
            ClosedResourceError: it was left.
            BusyResourceError: two tasks read.
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
        """The notes in lists of those that came together, 1 to 4,096: `async for notes in
        sub.batches()`; raises as `async for` does."""
        return Batches(self.next_batch)

    async def next_batch(self) -> list[D]:
        """The next of `batches`; none at the end. Raises as `async for` does; what comes before
        a note that is not of the type is a batch of its own, and so is each note that interceptors
        look at."""
        if not self._ready:
            await self._fill()
        if self._interceptors.note_in and self._ready:
            try:
                return [await self.__anext__()]
            except StopAsyncIteration:
                return []  # the others were skipped
        if self._kind is not None:
            while self._ready:
                batch = self._of_kind(self._kind)
                if batch:
                    return batch
                await self._fill()  # all were skipped
            return []
        batch, self._ready = self._ready, []
        batch.reverse()
        return batch

    def _of_kind(self, kind: DataType[D]) -> list[D]:
        """The notes that are ready, up to the first that is not of the type."""
        ready, batch = self._ready, list[D]()
        while ready:
            try:
                batch.append(kind.read(ready[-1]))
            except Exception as error:  # a model's own code may raise anything
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
        """Whether a note that is not of the type is skipped."""
        if self._on_malformed == "raise":
            return False
        self.malformed += 1
        if self._on_malformed != "skip":
            self._on_malformed(note, error)
        return True

    async def _intercepted(self) -> D:
        """The next note, once its interceptors let it through. It is read when they are done with
        it, or have raised: not if they were cancelled."""

        async def proceed(one: Intercepted) -> Any:
            return one.data

        chain, ready = self._interceptors.note_in, self._ready
        with self._reading:
            one = Intercepted(chain, self.peer, self.topic, ready[-1], self.headers)
            try:
                note: D = await chain.run(one, proceed)
            except Exception:
                del ready[-1:]  # it may have been left meanwhile, and nothing be there any more
                raise
            del ready[-1:]
            return note

    async def _fill(self) -> None:
        """Take the next event's notes; none at the end."""
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

    # From the connection.

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes will come."""
        if reset is not None:
            self._error = StreamResetError(reset.code, reset.text)
            if reset.code == CloseCode.SLOW_CONSUMER:
                self._lost_at_end = read_slow_text(reset.text)
        self._over = True
        self._wake()

    def lost(self, code: int, text: str) -> None:
        """The connection is over; what came stays readable."""
        self._error = PeerClosedError(code, text)
        self._over = True
        self._wake()

    # Inside.

    def _answered(self, call: OutgoingCall, code: int, stream: int) -> None:
        """The final answer came: from here on notes may follow, before anybody wakes."""
        topics = self._topics
        wanted = not call.done and code == ResultCode.ACCEPTED and self._begin(call)
        if wanted and topics.read(self.topic, stream, self, self._window):
            self._stream = stream
        topics.expect_no_more(self.topic, stream, given_up=self._given_up)

    def _give_up(self, call: OutgoingCall) -> None:
        """Nobody waits for the answer any more."""
        self._given_up = True
        self._outgoing.cancel(call)
        if self._topics.abandon_subscribe(self.topic):
            now = self._live.backend.now()
            with suppress(LocalError):  # the connection is closing
                self._outgoing.unsubscribe(self.topic, now, LEAVE_TIMEOUT, lambda: None)

    def _begin(self, call: OutgoingCall) -> bool:
        """Take what the Result says of where the notes begin; False if it is malformed."""
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
        if call.code in (ResultCode.ACCEPTED, STREAMED):  # without its stream, or in Chunks
            raise received_refusal(ResultCode.MALFORMED, None, subscribing=True)
        raise received_refusal(call.code, call.data, subscribing=True)

    def _leave(self) -> bool:
        """Want no more notes: tell the publisher; returns whether it has yet to answer."""
        if self.inbox.closed:
            return False
        others = self._shared is not None and self._shared.remove(self)
        self.inbox.close()
        if self._numbered is not None:
            self._numbered.number = self.number  # nobody will read what waits
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


def checked_on_malformed(given: OnMalformed) -> OnMalformed:
    """Return the option `on_malformed`; raises ConfigError if it is something else."""
    if isinstance(given, str) or not callable(given):
        if given not in ("raise", "skip"):
            raise ConfigError(
                f"on_malformed is {given!r}; it must be 'raise', 'skip' or a function"
            )
        return given
    require_callable(given, "on_malformed=", "note", "error", plain=True)
    return given
