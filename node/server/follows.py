"""`Follows`: topics of other nodes that a server reads once, and hands on to its accounts (section
19).

An account subscribes here to `TOPIC@SERVER` or `TOPIC@HOME/NODE`. The server reads with its own
right, which `follow` lends to all accounts.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from parley._crypto.identity import NodeId
from parley._node.errors import CallRefused, ParleyError
from parley._node.fair_slots import FairSlots
from parley._node.federation.exports import Exports
from parley._node.federation.topic_names import TopicElsewhere, read_topic_name
from parley._node.handlers.registry import LONGEST_NAME
from parley._node.handlers.topic import SubscribeRequest, Topic
from parley._node.messaging.kept import TopicPosition
from parley._node.node import Node
from parley._node.protocol.codes import ResultCode
from parley._node.remote.remote import Remote
from parley._node.server.followed_topic import FollowedTopic
from parley._node.server.shared_sessions import Reach, SharedSessions

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
