"""Runs an application's handlers for the calls of one peer.

Each call gets exactly one answer, whatever its handler does. Which calls may run at all is
asked here; when they may is up to `Answering`.
"""

from collections.abc import AsyncGenerator
from typing import Any

from parley._lbm import keys
from parley._lbm.codec import encode, is_large
from parley._node.handlers.invoke import Outcome, run_handler, send_items
from parley._node.handlers.registry import Entry, Handlers
from parley._node.handlers.topic import Topic
from parley._node.messaging.incoming_requests import IncomingCall
from parley._node.peer.answers import SLICE, Answers
from parley._node.peer.once import OnceHandlers
from parley._node.peer.subscribers import SubscribeHandlers
from parley._node.protocol.codes import CALL, ResultCode
from parley._node.remote.access_log import log_refused
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.requests import Call, CallHandler


class CallHandlers:
    """The handlers of calls, for one peer; its other requests go to `subscribes`, and calls that
    are to be made once to `once`."""

    __slots__ = ("_answers", "_handlers", "_live", "_once", "_subscribes")

    def __init__(
        self,
        live: LiveConnection,
        handlers: Handlers,
        answers: Answers,
        subscribes: SubscribeHandlers,
        once: OnceHandlers,
    ) -> None:
        self._live = live
        self._handlers = handlers
        self._answers = answers
        self._subscribes = subscribes
        self._once = once

    def find(self, subcategory: int, topic: str) -> Entry[CallHandler] | Topic | ResultCode:
        """What a request for `topic` may run, or the code that refuses the request."""
        live = self._live
        if live.driver.path and not self._handlers.exported(topic):
            return self._refused(topic, ResultCode.NOT_AUTHORISED)
        if subcategory != CALL:
            return self._subscribes.find(topic)
        entry = self._handlers.calls.find(topic)
        if entry is None:
            return self._refused(topic, ResultCode.TOPIC_NOT_FOUND)
        if entry.supercategories is not None and not entry.takes(live.supercategory):
            return self._refused(topic, ResultCode.WRONG_SUPERCATEGORY)
        return self._refused(topic, ResultCode.OVERLOADED) if live.draining else entry

    def _refused(self, topic: str, code: ResultCode) -> ResultCode:
        now = self._live.backend.now()
        log_refused(self._handlers.refused, self._live.remote, "call", topic, code, now)
        return code

    def run(self, call: IncomingCall) -> None:
        """Run what `find` found for a request."""
        if call.subcategory != CALL:
            self._subscribes.run(call)
            return
        if call.once is not None:
            self._once.run(call)
            return
        self._live.driver.to_begin.append((self._serve, call))

    async def _serve(self, call: IncomingCall) -> None:
        if call.answered:
            return  # nobody waits for it any more
        remote, answers = self._live.remote, self._answers
        call.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            outcome = await run_handler(
                call.entry,
                Call(remote, call),
                remote,
                call.topic,
                self._handlers.roles,
                lambda items: self._stream_answer(call, items),
            )
            if call.async_id and is_large(outcome[1], SLICE):
                answer = answers.prepare(call, *outcome)
                outcome = (ResultCode.CANCELLED, None)
                outcome = await answer
            if not self._live.driver.has_room:
                room = answers.room(call, *outcome)
                outcome = (ResultCode.CANCELLED, None)  # what was made waits there, encoded, alone
                outcome = await room
        finally:
            # Also when it was cancelled: each call gets its one answer.
            answers.give(call, *outcome)

    async def _stream_answer(self, call: IncomingCall, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Send what the handler yields as Chunks, no faster than they are read."""

        async def encode_item(item: Any) -> bytes:
            if is_large(item, SLICE):
                item = await self._answers.encode_large(item)
            return encode({} if item is None else {keys.DATA: item})

        chunk = self._answers.calls.answering.chunk
        return await send_items(self._live, call, items, encode_item, chunk)
