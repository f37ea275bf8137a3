"""`FollowedTopic`: one topic of another node, as this server has it for its accounts (section 19).

There is one subscription to it, opened with the first subscriber here and ended after the last.
Epoch and numbers are the publisher's, and what does not come is told by them. Where that cannot
be, since the topic was made anew or does not remember, all subscriptions here are reset
(`going-away`): whoever subscribes again has a new beginning.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, cast

from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.backoff import Pauses
from parley._node.errors import CallRefused, ParleyError, PeerClosedError, StreamResetError
from parley._node.fair_slots import FairSlots
from parley._node.federation.exports import Exports, TopicElsewhere, read_topic_name
from parley._node.handlers.registry import LONGEST_NAME
from parley._node.handlers.topic import MakeFeed, SubscribeRequest, Topic
from parley._node.logs import one_line
from parley._node.messaging.fanout import Feed
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.notes import DROPPED_HEADER, Headers, encode_note, read_headers
from parley._node.messaging.topic_history import TopicHistory, TopicPosition
from parley._node.node import Node
from parley._node.peer.reconnecting import random_fraction
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.limits import EVENT_COST
from parley._node.remote.remote import Remote
from parley._node.transport.conditions import pause, yield_to_loop
from parley._node.transport.task_scope import SingleTask
from parley._node.tunnels.session_pool import Reach, SharedSessions

logger = logging.getLogger("parley.server")

# Bytes of cost of one topic's last notes, for those who subscribe again; and of what may wait
# unread of it.
KEPT_BYTES: Final = 256 * 1024
# Between two sessions with the publisher.
PAUSES: Final = Pauses(first=0.2, longest=10.0)
_MAKES_WAY: Final = "another account needs its place"
_INTERRUPTED: Final = "the publisher is lost, or began anew"


class FollowedTopic(Topic[Any]):
    """A topic `elsewhere`, under `name` here; `first` is who asked for it first.

    `is_ending` says that it is not wanted any more: whoever asks now needs another one, once this
    has ended.
    """

    def __init__(
        self,
        name: str,
        elsewhere: TopicElsewhere,
        node: Node,
        sessions: SharedSessions,
        first: NodeId | None,
    ) -> None:
        super().__init__(name, node.handlers, lambda: node.backend, node.config.limits.max_payload)
        self.first = first
        self.active_at = node.backend.now()  # when the last notes came
        self.is_ending = False
        self._elsewhere = elsewhere
        self._sessions = sessions
        self._job = SingleTask(node.backend, self._changes)
        self._opening = 0  # those who wait for the publisher's answer, or have just had it
        self._is_begun = False  # the publisher has accepted once
        self._is_live = False  # it has, over a session that is there
        self._is_over = False
        self._refusal = CallRefused(ResultCode.UNREACHABLE)
        # By which code and text subscriptions here are reset; None: they have come to their end.
        self._ending: tuple[int, str] | None = (CloseCode.GOING_AWAY, _INTERRUPTED)

    # Who wants it.

    async def ready(self) -> None:
        """Wait for the publisher's answer. It is followed for so long, and one turn of the loop
        more, in which whoever waited may join.

        Raises:
            CallRefused: the publisher refuses, or is not to be reached.
        """
        self._opening += 1
        try:
            await self._changes.until(lambda: self._is_live or self._is_over)
            if self._is_over:
                raise CallRefused(self._refusal.code, self._refusal.data)
        finally:
            self._loop().soon(self._close_one)

    def join(self, make: MakeFeed[Any], on_closed: Callable[[Any], None]) -> Any:
        """As `Topic.join`; when the last one leaves it is not followed any more."""

        def closed(feed: Feed) -> None:
            on_closed(feed)
            self._end_unwanted()

        return super().join(make, closed)

    def end_unless(self, may_read: Callable[[NodeId], bool]) -> None:
        """Reset the subscriptions of those here who may not read it any more."""
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

    # Its life.

    def start(self, after: TopicPosition | None, on_end: Callable[[], object]) -> None:
        """Follow it from now on, the first time `after` what somebody here has; `on_end` hears
        when that is over."""
        self._job.start(self._run, after, on_end)

    def make_way(self) -> None:
        """End it soon, so that another topic can be followed; subscriptions here are reset."""
        self._ending = CloseCode.OVERLOADED, _MAKES_WAY
        self.is_ending = True
        self._job.cancel()

    async def end(self) -> None:
        """Follow it no more, and wait until that is so."""
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
        """Read it over one session after another, as long as nothing is missed untold; with pauses,
        or a publisher that ends each would have us dial all the time."""
        failures = 0
        try:
            while True:
                loop = self._loop()
                began = loop.now()
                if not await self._follow_session(after):
                    return
                after = self.position
                if loop.now() - began >= PAUSES.steady:
                    failures = 0
                failures += 1
                await pause(loop, PAUSES.after(failures, random_fraction()))
        except StreamResetError as reset:
            self._ending = reset.code, reset.text
        except CallRefused as refused:
            self._refusal = CallRefused(refused.code, refused.data)
        except TimeoutError:
            self._refusal = CallRefused(ResultCode.DEADLINE_EXCEEDED)
        except ParleyError as error:
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

    # Over one session.

    async def _follow_session(self, after: TopicPosition | None) -> bool:
        """Read it over one session; whether that was lost, and another may follow.

        Raises:
            ParleyError, TimeoutError: there is no session, or it is refused.
            StreamResetError: the publisher has reset it.
        """
        topic, to = self._elsewhere
        async with (
            self._sessions.to(to) as peer,
            peer.subscribe(topic, window=KEPT_BYTES, after=after) as subscription,
        ):
            if not self._goes_on(subscription):
                return False
            self._is_live = True
            self._changes.notify()
            try:
                await self._take_notes(subscription)
            except PeerClosedError:
                self._is_live = False
                return self._kept is not None
        self._ending = None
        return False

    def _goes_on(self, subscription: Subscription) -> bool:
        """Whether what comes now has a place among what came; the first that comes has one."""
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

    async def _take_notes(self, subscription: Subscription) -> None:
        """Hand on what comes, no faster than somebody here takes it, to its end."""
        fanout, kept, dropped, passed = self._fanout, self._kept, 0, 0
        while True:
            await self._room_here()
            notes = await subscription.next_batch()
            if not notes:
                return
            self.active_at = self._loop().now()
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

    async def _room_here(self) -> None:
        """Wait as long as nobody here takes notes, and then for those who do not yet: at most
        `patience` seconds, as if they had been published here. Slow ones hold up nobody else, and
        one that is alone loses nothing."""
        fanout = self._fanout
        await yield_to_loop(self._loop())
        fanout.crowded |= self._stuck()
        await self._changes.until(lambda: not fanout.crowded >= fanout.feeds.keys())
        await self._within(self._patience, lambda: all(one.lagging for one in fanout.crowded))
        fanout.give_up()

    def _stuck(self) -> set[Feed]:
        """Those here for whom more waits than is good, or who are yet to read what is kept."""
        high = self._fanout.high_water
        return {feed for feed in self._fanout.feeds if feed.behind or feed.cost > high}


def _headers_of(headers: Mapping[str, Value]) -> Headers | None:
    """The headers of a note but for the one that tells of losses: each reader has its own."""
    rest = {name: value for name, value in headers.items() if name != DROPPED_HEADER}
    return read_headers(rest) if rest else None


# Topics elsewhere that are followed at a time, and those of them for which one account was first.
MOST_FOLLOWED: Final = 1_024
MOST_OF_ACCOUNT: Final = 64
# Seconds without a note after which a topic makes way for an account that follows no fewer.
IDLE: Final = 60.0
_NO_DATA: Final = "no data goes to the publisher of a topic elsewhere"


class Follows:
    """The topics elsewhere that `node` follows, within its `async with`.

    `reach` opens a session by one id, a server's, or by two, those of a home and of a node there,
    which is closed here; it raises ParleyError where it cannot. `follow` names the topics, by their
    names there or with what follows the @; `is_account` says who may subscribe to them, and
    `may_dial` whether an account may have one more node dialled now.
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
        self._sessions = SharedSessions(reach)
        self._follow = follow
        self._is_account = is_account
        self._may_dial = may_dial
        self._topics: dict[str, FollowedTopic] = {}
        self._slots: FairSlots[FollowedTopic] = FairSlots(lambda topic: topic.active_at, IDLE)

    def __repr__(self) -> str:
        return f"<Follows {len(self._topics)} topics>"

    @property
    def topics(self) -> list[Topic]:
        """Those that are followed now; each knows its subscribers here."""
        return list(self._topics.values())

    async def __aenter__(self) -> Self:
        """Begin; ParleyError: the node follows topics already."""
        handlers = self._node.handlers
        if handlers.find_elsewhere is not None:
            raise ParleyError("the node follows topics already")
        handlers.find_elsewhere = self._find
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """End all subscriptions to topics elsewhere, those of accounts too."""
        self._node.handlers.find_elsewhere = None
        for topic in list(self._topics.values()):
            await topic.end()

    def end_unless(self, may_read: Callable[[NodeId], bool]) -> None:
        """End the subscriptions here of those who may have none any more."""
        for topic in list(self._topics.values()):
            topic.end_unless(may_read)

    # Inside.

    def _find(self, name: str, peer: Remote) -> Topic | ResultCode:
        elsewhere = read_topic_name(name)
        if elsewhere is None or len(elsewhere.topic) > LONGEST_NAME:
            return ResultCode.TOPIC_NOT_FOUND
        who, follow = peer.node_id, self._follow
        if who is None or not self._is_account(who):
            return ResultCode.NOT_AUTHORISED
        if not (follow.names(elsewhere.topic) or follow.names(name)):
            return ResultCode.NOT_AUTHORISED

        async def open_it(request: SubscribeRequest, after: TopicPosition | None) -> Topic:
            return await self._open(name, elsewhere, request, after)

        return _AskedTopic(name, self._node, open_it)

    async def _open(
        self,
        name: str,
        elsewhere: TopicElsewhere,
        request: SubscribeRequest,
        after: TopicPosition | None,
    ) -> Topic:
        if request.data is not None:
            raise CallRefused(ResultCode.REJECTED, _NO_DATA)
        topic = self._topics.get(name)
        while topic is not None and topic.is_ending:
            await topic.end()  # or the publisher would have us subscribed already
            topic = self._topics.get(name)
        if topic is None:
            topic = self._follow_from(name, elsewhere, request.peer.node_id, after)
        await topic.ready()
        return topic

    def _follow_from(
        self,
        name: str,
        elsewhere: TopicElsewhere,
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
            evicted.make_way()
        topic = FollowedTopic(name, elsewhere, self._node, self._sessions, first)

        def ended() -> None:
            self._slots.remove(topic)
            del self._topics[name]

        self._topics[name] = topic
        self._slots.add(topic, first)
        topic.start(after, ended)
        return topic


class _AskedTopic(Topic[Any]):
    """A topic elsewhere for as long as it is decided who may subscribe to it."""

    def __init__(
        self,
        name: str,
        node: Node,
        open_it: Callable[[SubscribeRequest, TopicPosition | None], Awaitable[Topic]],
    ) -> None:
        super().__init__(name, node.handlers, lambda: node.backend, node.config.limits.max_payload)
        self._open = open_it

    async def open(self, request: SubscribeRequest, after: TopicPosition | None) -> Topic:
        """Follow it, until the publisher has accepted; as `Topic.open`."""
        return await self._open(request, after)
