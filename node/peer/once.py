"""Runs handlers for the calls of one peer that are to be made once (section 18).

A Call waits in a task of its own, which ends with its session, its deadline or its Cancel. The
handler runs in another, which ends by itself, by the deadline of the first Call, and when all that
waited for it have been cancelled.
"""

import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from parley._crypto.identity import NodeId
from parley._lbm.errors import LbmEncodeError
from parley._node.handlers.invoke import FAILED, Outcome, run_handler
from parley._node.handlers.permissions import permitted
from parley._node.handlers.registry import Handlers
from parley._node.messaging.call_codec import FinalAnswer, sim_final
from parley._node.messaging.idempotency import OnceCall, OnceMemory, question_of
from parley._node.messaging.incoming_requests import IncomingCall
from parley._node.peer.answers import Answers
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import ONCE_RESULT
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.requests import Call

logger = logging.getLogger("parley.peer")

TOO_LONG = "the answer is longer than what is remembered"


class OnceHandlers:
    """The handlers of one peer's calls that are to be made once; `memory` is the node's."""

    __slots__ = ("_answers", "_handlers", "_live", "_memory")

    def __init__(
        self, live: LiveConnection, handlers: Handlers, answers: Answers, memory: OnceMemory
    ) -> None:
        self._live = live
        self._handlers = handlers
        self._answers = answers
        self._memory = memory

    def run(self, call: IncomingCall) -> None:
        """Answer a Call that has a key, by its handler or by what that said."""
        live = self._live
        who = live.node_id
        if not call.async_id:
            live.core.count_dropped()  # there is nothing to answer that it is not run
            self._answers.give(call, ResultCode.NOT_ONCE)
        elif who is None or not call.entry.once:
            self._answers.give(call, ResultCode.NOT_ONCE)
        else:
            call.runner = live.backend.spawn(self._serve, call, who)

    async def _serve(self, call: IncomingCall, who: NodeId) -> None:
        live, answers, entry = self._live, self._answers, call.entry
        if call.answered:
            return  # it was cancelled before its task began
        call.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            # Each time: a right may have been taken away since.
            if await permitted(entry.rules, live.remote, call.topic, self._handlers.roles):
                outcome = await self._answered(call, who)
            else:
                outcome = (ResultCode.NOT_AUTHORISED, None)
            if not live.driver.has_room:
                outcome = await answers.room(call, *outcome)
        finally:
            # Also when it was cancelled: each call gets its one answer.
            answers.give(call, *outcome)

    async def _answered(self, call: IncomingCall, who: NodeId) -> Outcome:
        """The answer, or the code by which the handler is not run."""
        found = await self._found(call, who)
        if isinstance(found, ResultCode):
            return found, None
        await self._wait(call, found)
        call.made = found.answer
        return found.code, None

    async def _found(self, call: IncomingCall, who: NodeId) -> OnceCall | ResultCode:
        """What is remembered of its key, or was begun for it, once there is room for that."""
        memory, backend = self._memory, self._live.backend
        assert call.once is not None
        question = question_of(call.topic, call.data)
        while (found := memory.find(who, call.once, question, backend.now())) is None:
            begun = memory.begin(who, call.once, question, call.weight)
            if begun is not None:
                self._begin(begun, call)
                return begun
            if not memory.may_wait(who):
                found = ResultCode.OVERLOADED
                break
            waiter = backend.waiter()
            memory.line_up(who, waiter.wake)
            try:
                await waiter.wait()
            except BaseException:
                memory.leave_line(who, waiter.wake)
                raise
        memory.next_in_line(who)  # it may have been woken, and takes no room
        return found

    async def _wait(self, call: IncomingCall, once: OnceCall) -> None:
        """Until it is answered. The last Call that is cancelled stops the handler."""
        once.callers += 1
        waiter = self._live.backend.waiter()
        try:
            while once.answer is None:
                once.waiting.add(waiter.wake)
                await waiter.wait()
        finally:
            once.callers -= 1
            once.waiting.discard(waiter.wake)
            if once.answer is None and not once.callers and self._was_cancelled(call):
                self._stop(once, ResultCode.CANCELLED)

    def _was_cancelled(self, call: IncomingCall) -> bool:
        """Whether a Cancel came for it: neither its session nor its time is over."""
        live = self._live
        late = call.deadline is not None and live.backend.now() >= call.deadline
        return call.answered and not late and live.ended is None

    # The handler.

    def _begin(self, once: OnceCall, call: IncomingCall) -> None:
        backend = self._live.backend
        once.runner = backend.spawn(self._run, once, call)
        if call.deadline is not None:
            once.timer = backend.at(
                call.deadline, lambda: self._stop(once, ResultCode.DEADLINE_EXCEEDED)
            )

    async def _run(self, once: OnceCall, call: IncomingCall) -> None:
        once.begun = True
        remote = self._live.remote
        try:
            if once.answer is None:  # else it was stopped before it began
                outcome = await run_handler(
                    replace(call.entry, rules=()),  # they were asked
                    Call(remote, call),
                    remote,
                    call.topic,
                    self._handlers.roles,
                    self._no_items,
                )
                outcome = await self._answers.prepare(call, *outcome)
                answer = self._final(call, outcome)
                self._memory.answer(once, outcome[0], answer, self._live.backend.now())
        finally:
            self._end(once)

    def _stop(self, once: OnceCall, code: ResultCode) -> None:
        """Its handler is to run no longer: `code` is its answer."""
        if once.answer is None:
            self._memory.answer(once, code, sim_final(code), self._live.backend.now())
            once.runner.cancel()
            if not once.begun:
                self._end(once)

    def _end(self, once: OnceCall) -> None:
        if once.timer is not None:
            once.timer.cancel()
        self._memory.end(once)

    def _final(self, call: IncomingCall, outcome: Outcome) -> FinalAnswer:
        """The Result of what a handler did. One that is too long is a failure, also for the first
        who asks: everybody who asks with this key gets the same."""
        try:
            answer = sim_final(*outcome)
        except LbmEncodeError:
            self._answers.log_unsent("the answer to %r", call.topic)
            return sim_final(*FAILED)
        if len(answer[2]) <= ONCE_RESULT:
            return answer
        now, text = self._live.backend.now(), "the answer to %r is longer than is remembered"
        call.entry.failures.log(
            logger,
            logging.ERROR,
            now,
            text,
            call.topic,
            extra={"event": "answer.not-remembered", "topic": call.topic},
        )
        return sim_final(ResultCode.HANDLER_FAILED, TOO_LONG)

    async def _no_items(self, items: AsyncGenerator[Any, Any]) -> Outcome:
        """An answer in items is not remembered; nothing of the handler has run yet."""
        await items.aclose()
        return ResultCode.NOT_ONCE, None
