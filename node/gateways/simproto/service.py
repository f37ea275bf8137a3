"""Runs a node's handlers for what the other side of a SimProto connection asks.

Whatever a handler does, its request gets one response, with a code that the document defines;
what SimProto cannot express goes to the log. The rules of the dialect are those of `Sim`.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from parley._lbm.codec import decode_value
from parley._node.dialects.simproto.codec import RPC
from parley._node.dialects.simproto.core import SimProtoCore
from parley._node.dialects.simproto.feeds import SimProtoFeed
from parley._node.dialects.simproto.sim import Sim
from parley._node.dialects.values import ConversionError, to_bytes
from parley._node.errors import CallRefused
from parley._node.gateways.guest import Guest
from parley._node.gateways.simproto.link import SimProtoTerms
from parley._node.handlers.registry import Entry
from parley._node.handlers.running import FAILED, Outcome, run_handler
from parley._node.handlers.subscribing import decide
from parley._node.handlers.topic import SubscribeRequest, Topic
from parley._node.messaging.batch import Batch
from parley._node.messaging.pending import IncomingCall
from parley._node.protocol.codes import ResultCode
from parley._node.remote.access import log_refused
from parley._node.remote.requests import Call

logger = logging.getLogger("parley.gateway")


class SimProtoService:
    """Serves the handlers and topics of an offering to one guest, over the `sim` layer that it
    makes. While `draining` it takes nothing new.

    `on_answered` is called when a request was answered, or a subscription of theirs ended.
    """

    __slots__ = (
        "_handlers",
        "_on_answered",
        "_peer",
        "_supercategory",
        "_told",
        "_topics",
        "_values",
        "core",
        "draining",
        "room",
        "sim",
    )

    def __init__(
        self,
        peer: Guest,
        core: SimProtoCore,
        terms: SimProtoTerms,
        on_answered: Callable[[], None],
    ) -> None:
        self._peer = peer
        self._handlers = terms.offering.handlers
        self._topics = terms.offering.topics
        self._values = terms.values
        self._on_answered = on_answered
        self._told: set[str] = set()  # handlers whose items were logged as lost
        carrier = peer.carried_by
        self._supercategory = None if carrier is None else carrier.supercategory
        self.draining = False
        self.core = core
        self.sim = Sim(core, self._find, self._run, _stop, self._topics.__contains__)
        self.room = self.sim.room

    # For feeds.

    def now(self) -> float:
        """The time."""
        return self._peer.backend.now()

    def convert(self, batch: Batch) -> Sequence[bytes | None]:
        """The data of a batch's notes, made once for all subscribers of this form."""
        return batch.in_form(self._values, self._note)

    def cut_off(self, feed: SimProtoFeed) -> None:
        """A subscriber is too slow: SimProto cannot tell it, so the log does."""
        text, ended = "%s lost its subscription of %r: too slow", self._handlers.ended
        ended.log(
            logger,
            logging.WARNING,
            self.now(),
            text,
            self._peer,
            feed.topic,
            extra={"event": "subscriber.slow", "topic": feed.topic},
        )

    # For `Sim`.

    def _find(self, kind: int, topic: str) -> ResultCode:
        """0 if a request may run, otherwise the code that refuses it."""
        if self._peer.path and not self._handlers.exported(topic):
            return ResultCode.NOT_AUTHORISED
        calls, topics = self._handlers.calls, self._topics
        found: Entry[Any] | Topic | None = calls.find(topic) if kind == RPC else topics.get(topic)
        if found is None:
            return ResultCode.TOPIC_NOT_FOUND
        if not found.takes(self._supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        if kind != RPC and self.sim.is_subscribed(topic):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.OVERLOADED if self.draining else ResultCode.ACCEPTED

    def _run(self, call: IncomingCall) -> None:
        """Start the handler of a request that `_find` let pass."""
        spawn = self._peer.backend.spawn
        if call.subcategory == RPC:
            call.runner = spawn(self._serve_call, self._handlers.calls.find(call.topic), call)
        else:
            call.runner = spawn(self._serve_subscribe, self._topics[call.topic], call)

    # Inside.

    async def _serve_call(self, entry: Entry[Any], call: IncomingCall) -> None:
        peer = self._peer
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            if not peer.driver.has_room:
                await peer.driver.room()  # a guest that reads no answers gets none made
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
            logger.error(
                "the handler of %r yields, for which SimProto has no form",
                entry.name,
                extra={"event": "handler.unfit", "topic": entry.name},
            )
        return FAILED

    async def _serve_subscribe(self, topic: Topic, call: IncomingCall) -> None:
        peer, sim = self._peer, self.sim
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            request = SubscribeRequest(peer, call)
            outcome = await decide(topic, request, self._handlers, self._supercategory)
            if outcome[0] == ResultCode.ACCEPTED:
                outcome = ResultCode.ACCEPTED, topic.begin(outcome[1], None)[0]
        except CallRefused as refused:
            outcome = refused.code, refused.data
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
            self._on_answered()  # perhaps with more than one

    def _feed_closed(self, feed: SimProtoFeed) -> None:
        self.sim.remove_feed(feed)
        self._on_answered()

    def _answer(self, call: IncomingCall, code: int, data: Any) -> bool:
        """Answer a request; returns whether it is answered by this outcome."""
        peer, unsent = self._peer, self._handlers.unsent
        now = peer.backend.now()
        right = True
        try:
            sent = data if type(data) is bytes else to_bytes(data, self._values)
        except ConversionError:
            text = "the answer to %r has no form in SimProto"
            unsent.log(
                logger,
                logging.ERROR,
                now,
                text,
                call.topic,
                exc_info=True,
                extra={"event": "answer.unsent", "topic": call.topic},
            )
            (code, _), sent, right = FAILED, b"", False
        if code and not call.answered:
            kind = "call" if call.subcategory == RPC else "topic"
            log_refused(self._handlers.refused, peer, kind, call.topic, code, now)
        if not self.sim.incoming.answer(call, code, sent, now):
            text = "the answer to %r is too long: %d bytes"
            unsent.log(
                logger,
                logging.ERROR,
                now,
                text,
                call.topic,
                len(sent),
                extra={"event": "answer.unsent", "topic": call.topic},
            )
            right = False
        self._on_answered()
        return right

    def _note(self, note: bytes) -> bytes | None:
        try:
            return to_bytes(decode_value(note), self._values)
        except ConversionError as error:
            unsent = self._handlers.unsent
            unsent.log(
                logger,
                logging.ERROR,
                self.now(),
                "a note is not sent: %s",
                error,
                extra={"event": "note.unsent"},
            )
            return None


def _stop(call: IncomingCall) -> None:
    if call.runner is not None:
        call.runner.cancel()
