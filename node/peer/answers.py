"""`Answers`: gives each request of a peer its one answer, whatever its handler did.

The peer learns a code, the handler's value or a fixed sentence; details go to the log.
"""

import logging
from typing import Any

import anyio

from lbm.errors import LbmEncodeError
from node.handlers.registry import Handlers
from node.handlers.running import FAILED, Outcome
from node.messaging.calls import Calls
from node.messaging.formats import FormatError
from node.messaging.pending import IncomingCall
from node.protocol.limits import ANSWER_PATIENCE
from node.remote.live import LiveConnection

logger = logging.getLogger("parley.peer")


class Answers:
    """The answers to the requests of one connection."""

    __slots__ = ("_handlers", "_live", "calls")

    # Set once it is made: the requests that are answered here.
    calls: Calls

    def __init__(self, live: LiveConnection, handlers: Handlers) -> None:
        self._live = live
        self._handlers = handlers

    async def room(self, call: IncomingCall, code: int, data: Any) -> Outcome:
        """Wait until there is room to write an answer, so that one is not lost because others
        were faster; for a limited time, and with a limited amount of memory. Returns what is to
        be given to `give`."""
        driver, account = self._live.driver, self._live.core.answers
        if driver.has_room or call.answered:
            return code, data
        try:
            size = self.calls.answering.make(call, code, data)
        except (LbmEncodeError, FormatError):
            return code, data  # `give` says so
        del data  # it has been encoded
        if not account.has_room(size):
            return code, None
        account.charge(size)
        try:
            with anyio.move_on_after(ANSWER_PATIENCE):
                await driver.room()
        finally:
            account.release(size)
        return code, None

    def give(self, call: IncomingCall, code: int, data: Any = None) -> None:
        """Answer a request; that its handler failed, if what it made has no encoding."""
        try:
            self.calls.answering.answer(call, code, data)
        except (LbmEncodeError, FormatError):
            self.log_unsent("the answer to %r", call.topic)
            self.calls.answering.answer(call, *FAILED)
        if self._live.draining:
            self._live.changed()

    def log_unsent(self, what: str, name: str) -> None:
        """Log the exception that is being handled: an answer has no encoding."""
        now, text = self._live.backend.now(), what + " has no encoding"
        self._handlers.unsent.log(
            logger,
            logging.ERROR,
            now,
            text,
            name,
            exc_info=True,
            extra={"event": "answer.unsent", "topic": name},
        )
