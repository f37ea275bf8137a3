"""`FollowedTopics`: topics of other nodes that a server reads once and forwards to its accounts
(docs/protocol.md section 19).

An account subscribes here to `TOPIC@SERVER` or `TOPIC@HOME/NODE`. The server reads with its own
permission, which the setting `follow` extends to all accounts. A topic has one subscription to its
publisher, from its first subscriber here to its last. Epoch and numbers are the publisher's, and
report what is missing. If that is impossible, because the topic was recreated or keeps no history,
all subscriptions here are reset (`going-away`), and those that are repeated start afresh.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio

from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.backoff import Backoff
from parley._node.errors import CallRefused, ParleyError, PeerClosedError, StreamResetError
from parley._node.fair_slots import FairSlots
from parley._node.federation.exports import Exports, RemoteTopic, read_topic_name
from parley._node.handlers.registry import LONGEST_NAME
from parley._node.handlers.topic import MakeFeed, SubscribeRequest, Topic
from parley._node.logs import one_line
from parley._node.messaging.fanout import Feed
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.notes import DROPPED_HEADER, Headers, encode_note, read_headers
from parley._node.messaging.topic_history import TopicHistory, TopicPosition
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import random_fraction
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import ProtocolError
from parley._node.protocol.limits import EVENT_COST
from parley._node.remote.remote import Remote
from parley._node.transport.conditions import pause, yield_to_loop
from parley._node.transport.task_scope import SingleTask
from parley._node.tunnels.session_pool import SessionPool

logger = logging.getLogger("parley.server")

# Cost in bytes of a topic's history here, and of its notes that wait unread.
KEPT_BYTES: Final = 256 * 1024
# Between two sessions with the publisher.
PAUSES: Final = Backoff(first=0.2, longest=10.0)
# Topics that are followed at a time, and those of them that one account subscribed to first.
MOST_FOLLOWED: Final = 1_024
MOST_OF_ACCOUNT: Final = 64
# Seconds without a note after which a topic can be evicted for an account that follows no fewer.
IDLE: Final = 60.0
# Seconds to open a session with a publisher.
OPEN_TIMEOUT: Final = 30.0
_EVICTED: Final = "another account needs its place"
_INTERRUPTED: Final = "the publisher is lost or was restarted"
_NO_DATA: Final = "a topic of another node takes no data from its subscribers"

# Opens a session, by the id of a server or the ids of a home and of a node there.
Reach = Callable[[Sequence[NodeId]], Awaitable[Peer]]


class FollowedTopic(Topic[Any]):
    """The topic `remote`, called `name` here; `first` is the account that subscribed first.

    `is_ending` is set once no subscription is left: a new one needs a new topic, after its end.
    """

    def __init__(
        self,
        name: str,
        remote: RemoteTopic,
        node: Node,
        sessions: SessionPool[tuple[NodeId, ...]],
        reach: Reach,
        first: NodeId | None,
    ) -> None:
        largest = node.config.limits.max_payload
        super().__init__(name, node.handlers, node.registrar.scope, largest)
        self.first = first
        self.active_at = node.backend.now()  # when the last notes came
        self.is_ending = False
        self._remote = remote
        self._sessions = sessions
        self._reach = reach
        self._job = SingleTask(node.backend, self._changes)
        self._opening = 0  # subscribers that wait for the publisher, or were just answered
        self._is_begun = False  # the publisher has accepted before
        self._is_live = False  # it has, over the current session
        self._is_over = False
        self._refusal = CallRefused(ResultCode.UNREACHABLE)
        # The code and text of resets of subscriptions here; None to end them normally.
        self._ending: tuple[int, str] | None = (CloseCode.GOING_AWAY, _INTERRUPTED)

    async def ready(self) -> None:
        """Wait for the publisher's answer. The topic is followed until then and one turn of the
        loop longer, in which the waiting subscriber can join.

        Raises:
            CallRefused: the publisher refuses or cannot be reached.
        """
        self._opening += 1
        try:
            await self._changes.until(lambda: self._is_live or self._is_over)
            if self._is_over:
                raise CallRefused(self._refusal.code, self._refusal.data)
        finally:
            self._scope.backend.call_soon(self._close_one)

    def join(self, make: MakeFeed[Any], on_closed: Callable[[Any], None]) -> Any:
        """As `Topic.join`. Following ends when the last subscriber leaves."""

        def closed(feed: Feed) -> None:
            on_closed(feed)
            self._end_unwanted()

        return super().join(make, closed)

    def end_unless(self, may_read: Callable[[NodeId], bool]) -> None:
        """Reset the subscriptions of nodes that may no longer read it."""
        for feed in list(self._fanout.feeds):
            assert isinstance(feed, StreamFeed)  # only native peers subscribe to it
            who = cast(Remote, feed.owner).node_id
            if who is None or not may_read(who):
                feed.reset(CloseCode.NOT_AUTHORISED, "")

    def _close_one(self) -> None:
        self._opening -= 1
        self._end_unwanted()

    def _end_unwanted(self) -> None:
        if not self._opening and not self._fanout.feeds:
            self.is_ending = True
            self._job.cancel()

    def start(self, after: TopicPosition | None, on_end: Callable[[], object]) -> None:
        """Follow the topic, at first `after` a position; `on_end` is called when that is over."""
        self._job.start(self._run, after, on_end)

    def evict(self) -> None:
        """Reset the subscriptions here and stop, so that another topic can be followed."""
        self._ending = CloseCode.OVERLOADED, _EVICTED
        self.is_ending = True
        self._job.cancel()

    async def end(self) -> None:
        """Stop following it and wait for the end."""
        self.is_ending = True
        await self._job.end()

    async def _run(self, after: TopicPosition | None, on_end: Callable[[], object]) -> None:
        try:
            await self._follow(after)
        finally:
            on_end()
            self._is_live, self._is_over = False, True
            self._end_subscribers()
            self._changes.notify()

    def _end_subscribers(self) -> None:
        if self._ending is None:
            self.close()
            return
        self.flush()
        for feed in list(self._fanout.feeds):
            assert isinstance(feed, StreamFeed)  # only native peers subscribe to it
            feed.reset(*self._ending)

    async def _follow(self, after: TopicPosition | None) -> None:
        """Read it over successive sessions while every loss can be reported. Pauses bound the
        dialling if the publisher keeps ending sessions."""
        failures = 0
        try:
            while True:
                loop = self._scope.backend
                began = loop.now()
                if not await self._follow_session(after):
                    return
                after = self.position
                if loop.now() - began >= PAUSES.steady:
                    failures = 0
                failures += 1
                await pause(loop, PAUSES.delay(failures, random_fraction()))
        except StreamResetError as reset:
            self._ending = reset.code, reset.text
        except CallRefused as refused:
            self._refusal = CallRefused(refused.code, refused.data)
        except TimeoutError:
            self._refusal = CallRefused(ResultCode.DEADLINE_EXCEEDED)
        except (ParleyError, ProtocolError) as error:
            logger.info(
                "topic %r: %s",
                self.name,
                one_line(str(error)),
                extra={"event": "follow.ended", "topic": self.name},
            )
        except Exception:
            logger.exception(
                "topic %r cannot be followed",
                self.name,
                extra={"event": "follow.failed", "topic": self.name},
            )

    async def _follow_session(self, after: TopicPosition | None) -> bool:
        """Read it over one session; returns whether that was lost and another may follow.

        Raises:
            ParleyError, ProtocolError, TimeoutError: cannot open a session, or it is refused.
            StreamResetError: the publisher reset the subscription.
        """
        topic, to = self._remote

        async def open_session() -> Peer:
            with anyio.fail_after(OPEN_TIMEOUT):
                return await self._reach(to)

        async with (
            self._sessions.use(to, open_session) as peer,
            peer.subscribe(topic, window=KEPT_BYTES, after=after) as subscription,
        ):
            if not self._continues(subscription):
                return False
            self._is_live = True
            self._changes.notify()
            try:
                await self._forward_notes(subscription)
            except PeerClosedError:
                self._is_live = False
                return self._kept is not None
        self._ending = None
        return False

    def _continues(self, subscription: Subscription) -> bool:
        """Whether the subscription continues the history here; the first one begins it."""
        position, kept = subscription.position, self._kept
        if self._is_begun:
            return kept is not None and position is not None and position.epoch == kept.epoch
        self._is_begun = True
        if position is not None:
            most = KEPT_BYTES // EVENT_COST
            # Not the position: the first notes may have come with the acceptance.
            kept = TopicHistory(position.epoch, most, KEPT_BYTES, subscription.number)
            self._kept = self._fanout.kept = kept
        return True

    async def _forward_notes(self, subscription: Subscription) -> None:
        """Forward notes, no faster than the fastest subscriber here, until their end."""
        fanout, kept, dropped, passed = self._fanout, self._kept, 0, 0
        while True:
            await self._wait_for_subscribers()
            notes = await subscription.next_batch()
            if not notes:
                return
            self.active_at = self._scope.backend.now()
            if kept is None:
                missing, dropped = subscription.dropped - dropped, subscription.dropped
                replaced = 0
            else:
                missing = subscription.number - len(notes) - kept.last
                replaced, passed = subscription.replaced - passed, subscription.replaced
            headers = _headers_of(subscription.headers)
            for note in notes:
                fanout.add(encode_note(note), headers, missing, replaced)
                missing = replaced = 0
            self.flush()

    async def _wait_for_subscribers(self) -> None:
        """Wait while no subscriber here takes notes, then at most `patience` seconds for the
        others, as if the notes were published here. Slow subscribers don't hold up the others, and
        a single one loses nothing."""
        fanout = self._fanout
        await yield_to_loop(self._scope.backend)
        fanout.crowded |= self._stuck()
        await self._changes.until(lambda: not fanout.crowded >= fanout.feeds.keys())
        await self._within(self._patience, lambda: all(one.lagging for one in fanout.crowded))
        fanout.skip_crowded()

    def _stuck(self) -> set[Feed]:
        """Feeds over their high-water mark, or still reading the history."""
        high = self._fanout.high_water
        return {feed for feed in self._fanout.feeds if feed.behind or feed.cost > high}


def _headers_of(headers: Mapping[str, Value]) -> Headers | None:
    """A note's headers without the count of losses, which differs between subscribers."""
    rest = {name: value for name, value in headers.items() if name != DROPPED_HEADER}
    return read_headers(rest) if rest else None


class FollowedTopics:
    """The topics that `node` follows, while its `async with` block is active.

    `reach` opens a session, which is closed here. `follow` lists the permitted topics, by their
    names at the publisher or with the part after the @. `is_account` decides who may subscribe, and
    `may_dial` whether an account may cause another dial now.
    """

    def __init__(
        self,
        node: Node,
        reach: Reach,
        follow: Exports,
        is_account: Callable[[NodeId], bool],
        may_dial: Callable[[NodeId], bool] = lambda node_id: True,
    ) -> None:
        self._node = node
        self._reach = reach
        self._sessions: SessionPool[tuple[NodeId, ...]] = SessionPool(
            lambda peer: peer.live.drop(CloseCode.NORMAL)
        )
        self._follow = follow
        self._is_account = is_account
        self._may_dial = may_dial
        self._topics: dict[str, FollowedTopic] = {}
        self._slots: FairSlots[FollowedTopic] = FairSlots(lambda topic: topic.active_at, IDLE)

    def __repr__(self) -> str:
        return f"<FollowedTopics: {len(self._topics)}>"

    @property
    def topics(self) -> list[Topic]:
        """The topics that are followed now."""
        return list(self._topics.values())

    async def __aenter__(self) -> Self:
        """Start; ParleyError if the node follows topics already."""
        handlers = self._node.handlers
        if handlers.find_elsewhere is not None:
            raise ParleyError("cannot follow topics: this node already follows some")
        handlers.find_elsewhere = self._find
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """End all subscriptions, including those of accounts."""
        self._node.handlers.find_elsewhere = None
        for topic in list(self._topics.values()):
            await topic.end()

    def end_unless(self, may_read: Callable[[NodeId], bool]) -> None:
        """End the subscriptions of nodes that may no longer read."""
        for topic in list(self._topics.values()):
            topic.end_unless(may_read)

    def _find(self, name: str, peer: Remote) -> Topic | ResultCode:
        remote = read_topic_name(name)
        if remote is None or len(remote.topic) > LONGEST_NAME:
            return ResultCode.TOPIC_NOT_FOUND
        who, follow = peer.node_id, self._follow
        if who is None or not self._is_account(who):
            return ResultCode.NOT_AUTHORISED
        if not (follow.names(remote.topic) or follow.names(name)):
            return ResultCode.NOT_AUTHORISED

        async def open_it(request: SubscribeRequest, after: TopicPosition | None) -> Topic:
            return await self._open(name, remote, request, after)

        return _PendingTopic(name, self._node, open_it)

    async def _open(
        self,
        name: str,
        remote: RemoteTopic,
        request: SubscribeRequest,
        after: TopicPosition | None,
    ) -> Topic:
        if request.data is not None:
            raise CallRefused(ResultCode.REJECTED, _NO_DATA)
        topic = self._topics.get(name)
        while topic is not None and topic.is_ending:
            await topic.end()  # its subscription must end first
            topic = self._topics.get(name)
        if topic is None:
            topic = self._start(name, remote, request.peer.node_id, after)
        await topic.ready()
        return topic

    def _start(
        self,
        name: str,
        remote: RemoteTopic,
        first: NodeId | None,
        after: TopicPosition | None,
    ) -> FollowedTopic:
        if first is None or self._slots.count(first) >= MOST_OF_ACCOUNT:
            raise CallRefused(ResultCode.OVERLOADED)
        if not self._may_dial(first):
            raise CallRefused(ResultCode.OVERLOADED)
        if len(self._slots) >= MOST_FOLLOWED:
            evicted = self._slots.evict_for(first, self._node.backend.now())
            if evicted is None:
                raise CallRefused(ResultCode.OVERLOADED)
            evicted.evict()
        topic = FollowedTopic(name, remote, self._node, self._sessions, self._reach, first)

        def ended() -> None:
            self._slots.remove(topic)
            del self._topics[name]

        self._topics[name] = topic
        self._slots.add(topic, first)
        topic.start(after, ended)
        return topic


class _PendingTopic(Topic[Any]):
    """A topic whose publisher has not accepted the subscription yet."""

    def __init__(
        self,
        name: str,
        node: Node,
        open_it: Callable[[SubscribeRequest, TopicPosition | None], Awaitable[Topic]],
    ) -> None:
        largest = node.config.limits.max_payload
        super().__init__(name, node.handlers, node.registrar.scope, largest)
        self._open = open_it

    async def open(self, request: SubscribeRequest, after: TopicPosition | None) -> Topic:
        """Follow the topic and wait for the publisher; otherwise as `Topic.open`."""
        return await self._open(request, after)
