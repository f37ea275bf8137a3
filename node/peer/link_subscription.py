"""`LinkSubscription`: a subscription that continues across the sessions of a link.

When a session ends, it subscribes again over the next one. It also resubscribes in the same session
if an intermediate node that relays the topic has lost its own subscription. Notes that arrived
before can still be read and are returned first.
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
    """The successive sessions of a link."""

    @property
    def is_over(self) -> bool:
        """Whether the link has ended."""

    @property
    def backend(self) -> Backend:
        """The event loop; raises ParleyError before the link's `async with`."""

    async def connected(self, timeout: float | None) -> tuple[Peer, float | None]:
        """Wait until the peer accepts requests; return it with the rest of `timeout`.

        Raises:
            CallTimeout: there was no connection in time; its cause is the reason.
            PeerClosedError: the link has ended.
            LimitReachedError: 4,096 requests are already waiting for the connection.
        """

    async def next_session(self) -> Peer:
        """Wait for a session and return its peer; PeerClosedError if the link has ended."""

    async def over(self) -> PeerClosedError:
        """Wait until the link has ended and return the error to raise."""

    def over_error(self) -> PeerClosedError:
        """Return the error to raise after the link has ended."""

    def add_subscription(self, subscription: object) -> None:
        """Register a subscription that continues across sessions; LimitReachedError beyond
        1,024.
        """

    def remove_subscription(self, subscription: object) -> None:
        """Remove a subscription that has ended."""


logger = logging.getLogger("parley.link")

H = TypeVar("H", bound="Callable[[], Awaitable[None] | None]")
T = TypeVar("T")

# Retry after these codes. A node that has just started may not have created the topic yet, or may
# be busy. A node may also have accepted a subscription that was cancelled here at the same moment,
# and not have received the cancellation yet.
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
# The most sessions with unread notes. Before subscribing in another session, wait until the notes
# of the oldest one have been read.
_MOST_UNREAD: Final = 2


class LinkSubscription(Generic[D]):
    """The notes of a topic, in order, across the sessions of a link.

    Made by `Link.subscribe`. Enter it with `async with`, then iterate with `async for`; only one
    task can read at a time. Iteration ends when the publisher closes the topic.

    Notes that are published between two sessions arrive only if the topic keeps a history
    (`Node.topic(keep=)`). `recovered` and `gaps` report missing notes.

    Attributes: data: the publisher's acceptance data in the session whose notes are being read.
    headers: the headers of the last note. sessions: in how many sessions the publisher accepted the
    subscription.

    Example:

        from parley import Identity, Node

        async with Node(Identity.create()) as server:
            topic = server.topic("prices", keep=10)
            async with node.link(await server.listen("tcp://127.0.0.1:0")) as link:
                async with link.subscribe("prices") as prices:
                    await topic.publish({"ACME": 42})
                    assert await anext(prices) == {"ACME": 42}
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
        # The position after the sessions whose notes have all been read.
        self._after = options.get("after")
        self._returns = returns
        self._on_malformed = checked_on_malformed(options.get("on_malformed", "raise"))
        self._begun = False
        self._parts: deque[Subscription[D]] = deque()  # One per session, the oldest first.
        self._part: Subscription[D] | None = None  # The part that is being read.
        self._hook: Callable[[], Awaitable[None] | None] | None = None
        self._session: Peer | None = None
        self._newest: Subscription[D] | None = None  # The subscription in that session.
        # Totals of the parts that were read to their end.
        self._dropped = self._malformed = self._gaps = self._number = 0
        self._recovered = False
        # `_told`: whether a note was read since the last unrecovered part. `_read_any`: whether a
        # note of the current part was read.
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
        """How many notes were lost because they were read too slowly, as reported by the
        publisher.
        """
        return self._dropped + sum(part.dropped for part in self._parts)

    @property
    def malformed(self) -> int:
        """How many notes were skipped because they don't match the type in `returns`."""
        return self._malformed + sum(part.malformed for part in self._parts)

    # Of a topic that keeps a history.

    @property
    def number(self) -> int:
        """The number of the last note that was read; see `Subscription.number`."""
        return self._parts[0].number if self._parts else self._number

    @property
    def recovered(self) -> bool:
        """Whether the session being read receives every note published since the previous session.

        Sessions of which no note was read count as part of the next session. See
        `Subscription.recovered`.
        """
        return self._is_recovered(self._parts[0]) if self._parts else self._recovered

    @property
    def gaps(self) -> int:
        """How many notes are missing before the last one that was read, according to their numbers.

        Notes that a topic published before it was restarted are not counted.
        """
        return self._gaps + (self._parts[0].gaps if self._parts else 0)

    @property
    def position(self) -> TopicPosition | None:
        """Where a later subscription can continue (`after=`); see `Subscription.position`."""
        return (self._parts[-1].position if self._parts else None) or self._after

    # Sessions.

    @property
    def is_over(self) -> bool:
        """Whether no further notes will arrive.

        The publisher closed the topic or refuses the subscription, the link has ended, or the
        subscription was left.
        """
        is_complete = bool(self._parts) and self._parts[-1].is_complete
        return is_complete or self._left or self._error is not None

    def on_session(self, hook: H) -> H:
        """Register the function to call whenever reading continues in another session.

        Can be used as a decorator. The reading task calls the function before the first note of
        that session; exceptions propagate to the reader. A coroutine function is awaited. There is
        only one such function; a later one replaces it.
        """
        require_callable(hook, "a hook of on_session")
        self._hook = hook
        return hook

    async def ready(self, timeout: float | None = None) -> Peer:
        """Wait until the subscription is active in an open session; return the peer of that
        session.

        `timeout` is in seconds; None waits without a limit.

        Raises:
            CallTimeout: it did not become active in time.
            CallRefused: the publisher refuses the subscription.
            PeerClosedError: the link has ended.
            ClosedResourceError: the subscription was left, or the publisher closed the topic.
            ParleyError: the subscription isn't entered yet.
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
            raise anyio.ClosedResourceError(f"the subscription to {self.topic!r} has ended")
        return self._session

    # Entering and leaving.

    async def __aenter__(self) -> Self:
        """Wait for a connection and subscribe.

        Raises:
            SubscribeRefused: the publisher refused the subscription (code 3).
            CallRefused: another code.
            CallTimeout: no answer arrived in time. If there was no connection, its cause is the
                reason.
            PeerClosedError: the link has ended.
            LimitReachedError: 4,096 requests are already waiting for the connection, or the link
                has 1,024 subscriptions.
            LbmEncodeError: the data cannot be encoded.
        """
        if self._begun:
            raise ParleyError(
                f"cannot enter the subscription to {self.topic!r} again; call subscribe again"
            )
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
        """Return the data of the next note.

        Raises:
            StreamResetError: the subscription was lost; code 33 (slow-consumer) means that notes
                were read too slowly.
            CallRefused: the publisher refused the subscription in a later session.
            PeerClosedError: the link has ended.
            ClosedResourceError: the subscription was left.
            BusyResourceError: another task is reading.
        """
        return await self._read(Subscription.__anext__)

    def batches(self) -> Batches[D]:
        """Iterate over the notes in batches: `async for notes in sub.batches()`.

        A batch is a list of 1 to 4,096 notes that arrived together. Raises the errors of `async
        for`.
        """
        return Batches(self.next_batch)

    async def next_batch(self) -> list[D]:
        """Return the next batch, or an empty list at the end. Raises the errors of `async for`."""
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
        """Switch to the notes of another session and call the `on_session` function."""
        self._part, self.data = part, part.data
        if self._hook is not None:
            made = self._hook()
            if made is not None:
                await made

    def _at_end(self, part: Subscription[D]) -> None:
        """Remove a session whose notes have all been read."""
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
            CallRefused: the publisher refuses the subscription with a code that isn't temporary.
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
                    "cannot subscribe to topic %r of the %s: %s; retrying in %.1f s",
                    self.topic,
                    link,
                    one_line(str(error)),
                    seconds,
                    extra={"event": "subscription.again", "topic": self.topic, "again_in": seconds},
                )
                await pause(link.backend, seconds)
            else:
                return
