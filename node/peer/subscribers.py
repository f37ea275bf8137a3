"""Decides on what one peer wants of our topics: to subscribe.

Each request gets exactly one answer, with one of the codes of section 9, whatever a handler does.
How notes flow from then on is up to `Topics` and `StreamFeed`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from parley._lbm.errors import LbmEncodeError
from parley._node.errors import CallRefused
from parley._node.handlers.invoke import FAILED, decide
from parley._node.handlers.registry import Handlers
from parley._node.handlers.topic import SubscribeRequest, Topic
from parley._node.messaging.fanout import Fanout, Feed
from parley._node.messaging.feeds import KeptFeed, StreamFeed
from parley._node.messaging.incoming_requests import IncomingCall
from parley._node.messaging.topics import Topics
from parley._node.peer.answers import Answers
from parley._node.protocol.codes import ResultCode
from parley._node.remote.access_log import log_refused
from parley._node.remote.live_connection import LiveConnection


class SubscribeHandlers:
    """The topics of a node, for one peer."""

    __slots__ = ("_answers", "_handlers", "_live", "_published", "topics")

    # Set once it is made: the subscriptions of the connection, which ask for what is found here.
    topics: Topics

    def __init__(
        self,
        live: LiveConnection,
        handlers: Handlers,
        answers: Answers,
        published: Mapping[str, Topic],
    ) -> None:
        self._live = live
        self._handlers = handlers
        self._answers = answers
        self._published = published

    def find(self, name: str) -> Topic | ResultCode:
        """The topic that a Subscribe to `name` is decided for, or the code that refuses it."""
        found = self._find(name)
        if isinstance(found, ResultCode):
            now = self._live.backend.now()
            log_refused(self._handlers.refused, self._live.remote, "topic", name, found, now)
        return found

    def _find(self, name: str) -> Topic | ResultCode:
        topic = self._published.get(name)
        if topic is None:
            elsewhere = self._handlers.find_elsewhere
            found = None if elsewhere is None else elsewhere(name, self._live.remote)
            if not isinstance(found, Topic):
                return ResultCode.TOPIC_NOT_FOUND if found is None else found
            topic = found
        if not topic.takes(self._live.supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        if self.topics.is_subscribed(name):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.OVERLOADED if self._live.draining else topic

    def run(self, call: IncomingCall) -> None:
        """Decide on a Subscribe to the topic that `find` found."""
        call.runner = self._live.backend.spawn(self._serve, call)

    async def _serve(self, call: IncomingCall) -> None:
        topic: Topic = call.entry
        live, answers = self._live, self._answers
        code: int = ResultCode.CANCELLED
        data: Any = None
        call.begun = True
        try:
            request = SubscribeRequest(live.remote, call)
            code, data = await decide(topic, request, self._handlers, live.supercategory)
            if code == ResultCode.ACCEPTED:
                self._accept(await topic.open(request, call.after), call, data)
                return
        except CallRefused as refused:
            code, data = refused.code, refused.data
        except LbmEncodeError:
            answers.log_unsent("the answer to a subscription of %r", topic.name)
            code, data = FAILED
        finally:
            # Also when it was cancelled: each request gets its one answer.
            answers.give(call, code, data)

    def _accept(self, topic: Topic, call: IncomingCall, data: Any) -> None:
        live = self._live
        data, after = topic.begin(data, call.after)

        def make(stream: int, on_closed: Callable[[StreamFeed], None]) -> StreamFeed:
            def feed(fanout: Fanout, closed: Callable[[Feed], None]) -> StreamFeed:
                where = live.core, stream, live.limits.max_payload, live.remote, closed
                if fanout.kept is None:
                    return StreamFeed(fanout, *where)
                return KeptFeed(fanout, fanout.kept, after, *where)

            return topic.join(feed, on_closed)

        self.topics.open_feed(call, data, make, remembers=topic.position is not None)
