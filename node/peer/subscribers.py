"""Answers what one peer wants of our topics: to subscribe, decided by the application.

One rule: who may subscribe is asked first, and whatever a handler does, the request
gets exactly one answer with one of the codes of section 9. Knows the topics and the
peer; how notes flow is `Topics`' and `Feed`'s.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lbm.errors import LbmEncodeError
from node.errors import CallRefused
from node.handlers.registry import Handlers
from node.handlers.rules import permitted
from node.handlers.running import FAILED, Outcome, log_failure
from node.handlers.topic import FORWARD_LOOP, SubscribeRequest, Topic
from node.messaging.pending import IncomingCall
from node.messaging.stream_feed import StreamFeed
from node.protocol.codes import ResultCode, Supercategory

if TYPE_CHECKING:
    from node.peer.peer import Peer


class Publishing:
    """The topics of a node, for one peer."""

    __slots__ = ("_handlers", "_peer", "_topics")

    def __init__(self, peer: "Peer", handlers: Handlers, topics: Mapping[str, Topic]) -> None:
        self._peer = peer
        self._handlers = handlers
        self._topics = topics

    def find(self, name: str) -> ResultCode:
        """Whether a Subscribe to `name` may be decided on, else the code that refuses it."""
        topic = self._topics.get(name)
        serving = self._peer.serving
        if topic is None:
            return ResultCode.TOPIC_NOT_FOUND
        if not topic.takes(serving.supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        if self._peer.topics.is_subscribed(name):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.OVERLOADED if serving.draining else ResultCode.ACCEPTED

    def run(self, call: IncomingCall) -> None:
        """Decide on a Subscribe that `find` let pass."""
        topic = self._topics[call.topic]
        call.runner = self._peer.backend.spawn(self._serve, topic, call)

    async def _serve(self, topic: Topic, call: IncomingCall) -> None:
        code: int = ResultCode.CANCELLED
        data: Any = None
        call.begun = True
        try:
            peer = self._peer
            code, data = await decide(
                topic, SubscribeRequest(peer, call), self._handlers, peer.serving.supercategory
            )
            if code == ResultCode.ACCEPTED:
                self._accept(topic, call, data)
                return
        except LbmEncodeError:
            self._peer.serving.log_unsent("the answer to a subscription of %r", topic.name)
            code, data = FAILED
        finally:
            # Also when it was cancelled: each request gets its one answer.
            self._peer.serving.answer(call, code, data)

    def _accept(self, topic: Topic, call: IncomingCall, data: Any) -> None:
        peer = self._peer

        def make(stream: int, on_closed: Callable[[StreamFeed], None]) -> StreamFeed:
            size = peer.limits.max_payload
            return topic.join(
                lambda fanout, closed: StreamFeed(fanout, peer.core, stream, size, peer, closed),
                on_closed,
            )

        peer.topics.open_feed(call, data, make)


async def decide(
    topic: Topic,
    request: SubscribeRequest,
    handlers: Handlers,
    supercategory: Supercategory | None,
) -> Outcome:
    """Whether the peer or guest of a request may subscribe, in whatever dialect: a code of
    section 9, and data."""
    if not await permitted(topic.rules, request.peer, topic.name, handlers.roles):
        return ResultCode.NOT_AUTHORISED, None
    outcome = await _ask(topic, request, handlers, supercategory)
    # Looked at last: forwarding may have begun while the handler took its time.
    if outcome[0] == ResultCode.ACCEPTED and topic.comes_from(request.peer.node_id):
        return ResultCode.REJECTED, FORWARD_LOOP
    return outcome


async def _ask(
    topic: Topic,
    request: SubscribeRequest,
    handlers: Handlers,
    supercategory: Supercategory | None,
) -> Outcome:
    """What the topic's handler says, if it has one."""
    entry = handlers.subscribes.find(topic.name)
    if entry is None:
        return ResultCode.ACCEPTED, None
    if not entry.takes(supercategory):
        return ResultCode.WRONG_SUPERCATEGORY, None
    try:
        data = entry.handler(request)
        if inspect.isawaitable(data):
            data = await data
    except CallRefused as refused:
        if not refused.received:
            return refused.code, refused.data
        log_failure(entry, topic.name, request.peer, "the subscription handler of %r")
    except Exception:
        log_failure(entry, topic.name, request.peer, "the subscription handler of %r")
    else:
        return ResultCode.ACCEPTED, data
    return FAILED
