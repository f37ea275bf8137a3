"""`LinkSubscription`: a topic of a node, as its subscriber reads it, over as many sessions as it
takes.

When a session ends it subscribes again over the next one; and over the same one where a node in
between, which follows the topic for us, has lost its own. What had come and was not read stays
readable, and comes first.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar, Unpack

import anyio

from parley._lbm.codec import Encodable, Value
from parley._node.backoff import Backoff
from parley._node.data_types import D, Model
from parley._node.errors import CallRefused, ParleyError, PeerClosedError, StreamResetError
from parley._node.logs import one_line
from parley._node.messaging.notes import NO_HEADERS
from parley._node.messaging.topic_history import TopicPosition
from parley._node.peer.peer import DEFAULT_TIMEOUT, Peer, SubscribeOptions
from parley._node.peer.reconnecting import random_fraction
from parley._node.peer.subscription import Batches, Subscription, checked_on_malformed
from parley._node.protocol.codes import ResultCode
from parley._node.transport.backend import Backend
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import Condition, pause, wait_within
from parley._node.transport.task_scope import SingleTask


class LinkSessions(Protocol):
    """The sessions of a link, one after another."""

    @property
    def is_over(self) -> bool:
        """Whether the link has ended."""

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before its `async with`."""

    async def connected(self, timeout: float | None) -> tuple[Peer, float | None]:
        """The peer, once it can be asked at once, and what is left of `timeout`.

        Raises:
            CallTimeout: no connection in time; its cause is why.
            PeerClosedError: the link has ended.
            LimitReachedError: 4,096 wait for the connection.
        """

    async def next_session(self) -> Peer:
        """The peer, once there is a session; PeerClosedError if there will be none."""

    async def over(self) -> PeerClosedError:
        """Wait until the link has ended; returns what to raise then."""

    def over_error(self) -> PeerClosedError:
        """What to raise once the link has ended."""

    def add_subscription(self, subscription: object) -> None:
        """Keep a subscription over sessions; LimitReachedError beyond 1,024."""

    def remove_subscription(self, subscription: object) -> None:
        """Forget a subscription that has ended."""


logger = logging.getLogger("parley.link")

H = TypeVar("H", bound="Callable[[], Awaitable[None] | None]")
T = TypeVar("T")

# A node that has just started may not have the topic yet, or be busy: it is asked again. So is one
# that had accepted what we gave up at that moment, and has not heard of it yet.
PASSING: Final = frozenset(
    {
        ResultCode.TOPIC_NOT_FOUND,
        ResultCode.ALREADY_SUBSCRIBED,
        ResultCode.DEADLINE_EXCEEDED,
        ResultCode.CANCELLED,
        ResultCode.OVERLOADED,
        ResultCode.UNREACHABLE,
    }
)
PAUSES: Final = Backoff(first=0.2, longest=10.0)
# Sessions whose notes wait unread, at most: the next one is subscribed to when the reader has
# come to the end of the first.
_MOST_UNREAD: Final = 2


class LinkSubscription(Generic[D]):
    """The notes of a topic, in their order: `async with link.subscribe("prices") as sub`, then
    `async for note in sub`. One task may read at a time.

    `data` is what came with the acceptance over the session whose notes are read now, `headers`
    came with the last note. `sessions` counts the sessions over which it was accepted. The end of
    the notes is the publisher's: it closed the topic. What is published between two sessions comes
    if the topic remembers it (`Node.topic(keep=)`); `recovered` and `gaps` tell what does not.
    Made with `returns`, each note is of that type.
    """

    def __init__(
        self,
        link: LinkSessions,
        topic: str,
        data: Encodable | Model,
        returns: Any = None,
        **options: Unpack[SubscribeOptions],
    ) -> None:
        self.topic = topic
        self.data: Value = None
        self.headers: Mapping[str, Value] = NO_HEADERS
        self.sessions = 0
        self._link = link
        self._asked = data
        self._timeout = options.get("timeout", DEFAULT_TIMEOUT)
        self._window = options.get("window")
        self._after = options.get("after")  # the position of parts that were read to their end
        self._returns = returns
        self._on_malformed = checked_on_malformed(options.get("on_malformed", "raise"))
        self._begun = False
        self._parts: deque[Subscription[D]] = deque()  # of one session each, the oldest first
        self._part: Subscription[D] | None = None  # the one that is read
        self._hook: Callable[[], Awaitable[None] | None] | None = None
        self._session: Peer | None = None
        self._newest: Subscription[D] | None = None  # over that session
        # Of parts that were read to their end.
        self._dropped = self._malformed = self._gaps = self._number = 0
        self._recovered = False
        # Whether a note has told that one of them was not recovered; and one of the first part.
        self._told, self._read_any = True, False
        self._error: Exception | None = None
        self._left = False
        self._job: SingleTask | None = None
        self._changes = Condition(lambda: link.backend.waiter())
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<LinkSubscription to {self.topic!r} of {self._link!r}>"

    @property
    def dropped(self) -> int:
        """How many notes were lost because we did not keep up, as far as we were told."""
        return self._dropped + sum(part.dropped for part in self._parts)

    @property
    def malformed(self) -> int:
        """How many notes were skipped because they are not of the type."""
        return self._malformed + sum(part.malformed for part in self._parts)

    # Of a topic that remembers.

    @property
    def number(self) -> int:
        """The number of the last note that was read; as `Subscription.number`."""
        return self._parts[0].number if self._parts else self._number

    @property
    def recovered(self) -> bool:
        """Whether every note that was published since the session before comes over the one whose
        notes are read now; as `Subscription.recovered`. Sessions of which no note was read count
        as one with the next."""
        return self._is_recovered(self._parts[0]) if self._parts else self._recovered

    @property
    def gaps(self) -> int:
        """How many notes are missing before the last one that was read, by their numbers. Those
        that a topic had when it was started anew are not known, and not counted."""
        return self._gaps + (self._parts[0].gaps if self._parts else 0)

    @property
    def position(self) -> TopicPosition | None:
        """Where a later subscription goes on (`after=`); as `Subscription.position`."""
        return (self._parts[-1].position if self._parts else None) or self._after

    # Of its sessions.

    @property
    def is_over(self) -> bool:
        """Whether nothing follows the notes that came: the publisher has ended it, or refuses it;
        the link has ended; or it was left."""
        is_complete = bool(self._parts) and self._parts[-1].is_complete
        return is_complete or self._left or self._error is not None

    def on_session(self, hook: H) -> H:
        """Have a function called each time that it goes on over another session; as a decorator,
        or not. It is called by the task that reads, before the first note of that session, and
        what it raises is raised there. A coroutine function is awaited. There is one of them.
        """
        require_callable(hook, "a hook of on_session")
        self._hook = hook
        return hook

    async def ready(self, timeout: float | None = None) -> Peer:
        """Wait until it is subscribed over a session that is open; returns that session's peer.
        `timeout` is seconds, None: as long as it takes.

        Raises:
            CallTimeout: it is not subscribed by then.
            CallRefused: the publisher refuses it.
            PeerClosedError: the link has ended.
            ClosedResourceError: it was left, or the publisher has ended it.
            ParleyError: it isn't entered yet.
        """
        self._require_begun()
        await wait_within(
            lambda: self._changes.until(lambda: self.is_over or self._is_subscribed),
            timeout,
            self._link.backend.now,
        )
        if self._error is not None and not self._left:
            raise self._error
        if self.is_over or self._session is None:
            raise anyio.ClosedResourceError
        return self._session

    # Beginning and end.

    async def __aenter__(self) -> Self:
        """Subscribe, once there is a connection.

        Raises:
            SubscribeRefused: the publisher said no (code 3).
            CallRefused: another code.
            CallTimeout: no answer in time, or no connection: then its cause is why.
            PeerClosedError: the link has ended.
            LimitReachedError: 4,096 wait for the connection, or the link has 1,024 subscriptions.
            LbmEncodeError: the data has no encoding.
        """
        if self._begun:
            raise ParleyError("a subscription is made once")
        self._begun = True
        link = self._link
        link.add_subscription(self)
        try:
            await self._first()
        except BaseException:
            link.remove_subscription(self)
            raise
        self._job = SingleTask(link.backend, self._changes)
        self._job.start(self._keep)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._left = True
        self._link.remove_subscription(self)
        if self._job is not None:
            with anyio.CancelScope(shield=True):
                await self._job.end()
        while self._parts:
            part = self._parts.popleft()
            await part.__aexit__(exc_type, exc_val, exc_tb)
            self._done_with(part)

    # Reading.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> D:
        """The data of the next note.

        Raises:
            StreamResetError: the subscription was lost; code 33, slow-consumer, means that we did
                not keep up.
            CallRefused: the publisher refuses it after a session ended.
            PeerClosedError: the link has ended.
            ClosedResourceError: it was left.
            BusyResourceError: two tasks read.
        """
        return await self._read(Subscription.__anext__)

    def batches(self) -> Batches[D]:
        """The notes in lists of those that came together, 1 to 4,096: `async for notes in
        sub.batches()`; raises as `async for` does."""
        return Batches(self.next_batch)

    async def next_batch(self) -> list[D]:
        """The next of `batches`; none at the end. Raises as `async for` does."""
        return await self._read(Subscription.next_batch)

    async def _read(self, read: Callable[[Subscription[D]], Awaitable[T]]) -> T:
        self._require_begun()
        with self._reading:
            while True:
                if self._left:
                    raise anyio.ClosedResourceError(f"the subscription to {self.topic!r} was left")
                if not self._parts:
                    if self._error is not None:
                        raise self._error
                    await self._changes.until(
                        lambda: bool(self._parts or self._error or self._left)
                    )
                    continue
                part = self._parts[0]
                if part is not self._part:
                    await self._turn_to(part)
                try:
                    result = await read(part)
                except (PeerClosedError, StreamResetError):
                    if not part.was_lost:
                        raise
                    self._at_end(part)
                else:
                    self.headers = part.headers
                    self._read_any = True
                    return result

    def _require_begun(self) -> None:
        if not self._begun:
            raise ParleyError(
                f"cannot read topic {self.topic!r}: the subscription isn't entered; "
                "use `async with link.subscribe(..) as sub`"
            )

    async def _turn_to(self, part: Subscription[D]) -> None:
        """What is read next comes over another session."""
        self._part, self.data = part, part.data
        if self._hook is not None:
            made = self._hook()
            if made is not None:
                await made

    def _at_end(self, part: Subscription[D]) -> None:
        """All that a session brought was read."""
        if self._parts and self._parts[0] is part:
            self._done_with(self._parts.popleft())
            self._changes.notify()

    def _done_with(self, part: Subscription[D]) -> None:
        self._dropped += part.dropped
        self._malformed += part.malformed
        self._gaps += part.gaps
        self._number, self._recovered = part.number, self._is_recovered(part)
        self._after = part.position or self._after
        self._told = self._read_any or self._recovered
        self._read_any = False

    def _is_recovered(self, part: Subscription[D]) -> bool:
        return part.recovered and self._told

    # Inside.

    @property
    def _is_subscribed(self) -> bool:
        session, newest = self._session, self._newest
        return session is not None and session.is_open and not (newest and newest.was_lost)

    async def _first(self) -> None:
        link, timeout = self._link, self._timeout
        while True:
            peer, timeout = await link.connected(timeout)
            began = link.backend.now()
            try:
                await self._subscribe(peer, timeout)
            except PeerClosedError:
                if link.is_over:
                    raise link.over_error() from None
                if timeout is not None:
                    timeout = max(0.0, timeout - (link.backend.now() - began))
            else:
                self._part = self._parts[0]
                self.data = self._part.data
                return

    async def _subscribe(self, peer: Peer, timeout: float | None) -> None:
        part: Subscription[Any] = peer.subscribe(
            self.topic,
            self._asked,
            timeout=timeout,
            window=self._window,
            after=self.position,
            returns=self._returns,
            on_malformed=self._on_malformed,
        )
        await part.__aenter__()
        self.sessions += 1
        self._session, self._newest = peer, part
        self._parts.append(part)
        self._changes.notify()

    async def _keep(self) -> None:
        try:
            while True:
                if self._session is not None and self._newest is not None:
                    await self._newest.over()
                    if not self._newest.was_lost:
                        await self._session.closed()
                if self.is_over:
                    return
                await self._changes.until(lambda: len(self._parts) < _MOST_UNREAD)
                await self._again()
        except Exception as error:
            self._error = error
        finally:
            if self._error is None:
                self._error = self._link.over_error()
            self._changes.notify()

    async def _again(self) -> None:
        """Subscribe over the next session.

        Raises:
            CallRefused: the publisher refuses, and not for a moment.
            PeerClosedError: the link has ended.
        """
        link, failures = self._link, 0
        while True:
            peer = await link.next_session()
            try:
                await self._subscribe(peer, self._timeout)
            except PeerClosedError:
                continue
            except CallRefused as error:
                if error.code not in PASSING:
                    raise
                failures += 1
                seconds = PAUSES.delay(failures, random_fraction())
                logger.info(
                    "topic %r of the %s: %s; asked again in %.1f s",
                    self.topic,
                    link,
                    one_line(str(error)),
                    seconds,
                    extra={"event": "subscription.again", "topic": self.topic, "again_in": seconds},
                )
                await pause(link.backend, seconds)
            else:
                return
