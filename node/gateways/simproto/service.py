"""Runs a node's handlers for what the other side of a SimProto connection asks.

One rule: whatever a handler does, its request gets one response, with a code that the
document has; all that it cannot say goes to the log. Knows the handlers and topics of
one `Offering`; the rules of the dialect are `Sim`'s.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from lbm.codec import decode_value
from node.dialects.simproto.codec import RPC
from node.dialects.simproto.core import SimProtoCore
from node.dialects.simproto.dialog_room import DialogRoom
from node.dialects.simproto.feeds import SimProtoFeed
from node.dialects.values import ConversionError, Rest, to_bytes
from node.handlers.registry import Entry
from node.handlers.running import FAILED, Outcome, run_handler
from node.handlers.topic import SubscribeRequest, Topic
from node.messaging.batch import Batch
from node.messaging.pending import IncomingCall
from node.offering import Offering
from node.peer.subscribers import decide
from node.protocol.codes import ResultCode
from node.remote.requests import Call

if TYPE_CHECKING:
    from node.gateways.simproto.peer import SimProtoPeer

logger = logging.getLogger("parley.gateway")


class SimProtoService:
    """The handlers and topics of `offering`, for one peer; `values` is the form of data that
    is neither bytes nor text. `draining` takes nothing new.

    `core` and `room` are where its topics' notes go.
    """

    __slots__ = (
        "_handlers",
        "_peer",
        "_supercategory",
        "_told",
        "_topics",
        "_values",
        "core",
        "draining",
        "room",
    )

    core: SimProtoCore
    room: DialogRoom

    def __init__(self, peer: "SimProtoPeer", offering: Offering, values: Rest) -> None:
        self._peer = peer
        self._handlers = offering.handlers
        self._topics = offering.topics
        self._values = values
        self._told: set[str] = set()  # handlers of which the log has that they yield
        # Who says no role has none.
        carrier = peer.carrier
        self._supercategory = None if carrier is None else carrier.serving.supercategory
        self.draining = False

    # For `Sim`.

    def find(self, kind: int, topic: str) -> ResultCode:
        """Whether a request may run, else the code that refuses it."""
        calls, topics = self._handlers.calls, self._topics
        found: Entry[Any] | Topic | None = calls.find(topic) if kind == RPC else topics.get(topic)
        if found is None:
            return ResultCode.TOPIC_NOT_FOUND
        if not found.takes(self._supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        if kind != RPC and self._peer.sim.is_subscribed(topic):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.OVERLOADED if self.draining else ResultCode.ACCEPTED

    def run(self, call: IncomingCall) -> None:
        """Run the handler of a request that `find` let pass."""
        spawn = self._peer.backend.spawn
        if call.subcategory == RPC:
            call.runner = spawn(self._serve_call, self._handlers.calls.find(call.topic), call)
        else:
            call.runner = spawn(self._serve_subscribe, self._topics[call.topic], call)

    def knows(self, topic: str) -> bool:
        """Whether we publish a topic."""
        return topic in self._topics

    # For feeds.

    def now(self) -> float:
        """The time."""
        return self._peer.backend.now()

    def touch(self) -> None:
        """Something was queued on the connection."""
        self._peer.driver.touch()

    def convert(self, batch: Batch) -> Sequence[bytes | None]:
        """The data of its notes, made once for all subscribers of this form."""
        return batch.in_form(self._values, self._note)

    def cut_off(self, feed: SimProtoFeed) -> None:
        """A subscriber is too slow: nobody can tell it, so the log does."""
        text, ended = "%s lost its subscription of %r: too slow", self._handlers.ended
        ended.log(logger, logging.WARNING, self.now(), text, self._peer, feed.topic)

    # Inside.

    async def _serve_call(self, entry: Entry[Any], call: IncomingCall) -> None:
        peer = self._peer
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            if not peer.driver.has_room:
                await peer.driver.room()  # who does not read answers has none made
            request = Call(peer, call)
            roles = self._handlers.roles
            outcome = await run_handler(
                entry, request, peer, call.topic, roles, lambda items: self._no_items(entry, items)
            )
        finally:
            # Also when it was cancelled: each request gets its one answer.
            self._answer(call, *outcome)

    async def _no_items(self, entry: Entry[Any], items: AsyncGenerator[Any, Any]) -> Outcome:
        await items.aclose()
        if entry.name not in self._told:
            self._told.add(entry.name)
            logger.error("the handler of %r yields, for which SimProto has no form", entry.name)
        return FAILED

    async def _serve_subscribe(self, topic: Topic, call: IncomingCall) -> None:
        peer, sim = self._peer, self._peer.sim
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            request = SubscribeRequest(peer, call)
            outcome = await decide(topic, request, self._handlers, self._supercategory)
        finally:
            over = call.answered
            if self._answer(call, *outcome) and not over and not outcome[0]:
                sim.add_feed(
                    topic.join(
                        lambda fanout, closed: SimProtoFeed(fanout, self, peer, closed),
                        self._feed_closed,
                    )
                )
            sim.incoming.decided(call, peer.backend.now())
            peer.answered()  # perhaps with more than one

    def _feed_closed(self, feed: SimProtoFeed) -> None:
        self._peer.sim.remove_feed(feed)
        self._peer.answered()

    def _answer(self, call: IncomingCall, code: int, data: Any) -> bool:
        """Answer a request; returns whether it is answered by this outcome."""
        peer, unsent = self._peer, self._handlers.unsent
        now = peer.backend.now()
        right = True
        try:
            sent = data if type(data) is bytes else to_bytes(data, self._values)
        except ConversionError:
            text = "the answer to %r has no form in SimProto"
            unsent.log(logger, logging.ERROR, now, text, call.topic, exc_info=True)
            (code, _), sent, right = FAILED, b"", False
        if code and not call.answered:
            text, refused = "%r of %s: refused with %d", self._handlers.refused
            refused.log(logger, logging.INFO, now, text, call.topic, peer, code)
        if not peer.sim.incoming.answer(call, code, sent, now):
            text = "the answer to %r is too long: %d bytes"
            unsent.log(logger, logging.ERROR, now, text, call.topic, len(sent))
            right = False
        peer.answered()
        return right

    def _note(self, note: bytes) -> bytes | None:
        try:
            return to_bytes(decode_value(note), self._values)
        except ConversionError as error:
            unsent = self._handlers.unsent
            unsent.log(logger, logging.ERROR, self.now(), "a note is not sent: %s", error)
            return None
