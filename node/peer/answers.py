"""`Answers`: gives each request of a peer its one answer, whatever its handler did.

The peer learns a code, the handler's value or a fixed sentence; details go to the log.
"""

import logging
import marshal
from typing import Any, Final

import anyio

from parley._lbm.codec import Encoded, encode_slices, is_large
from parley._lbm.errors import LbmEncodeError
from parley._node.errors import CallRefused
from parley._node.handlers.invoke import FAILED, Outcome
from parley._node.handlers.registry import Handlers
from parley._node.messaging.formats import FormatError
from parley._node.messaging.incoming_requests import IncomingCall
from parley._node.messaging.requests import Calls
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import ANSWER_PATIENCE
from parley._node.remote.live_connection import LiveConnection

logger = logging.getLogger("parley.peer")

# Items that are encoded at a time, in about a millisecond.
SLICE: Final = 2_000


class Answers:
    """The answers to the requests of one connection."""

    __slots__ = ("_handlers", "_live", "_one", "calls")

    # Set once it is made: the requests that are answered here.
    calls: Calls

    def __init__(self, live: LiveConnection, handlers: Handlers) -> None:
        self._live = live
        self._handlers = handlers
        self._one = anyio.Lock()  # held while one answer of the connection is encoded in slices

    async def prepare(self, call: IncomingCall, code: int, data: Any) -> Outcome:
        """Encode an answer that takes long, and let other connections run in between.

        Returns the arguments for `give`.
        """
        if not is_large(data, SLICE):
            return code, data
        try:
            return code, await self.encode_large(data)
        except CallRefused as refused:
            return refused.code, None
        except LbmEncodeError:
            self.log_unsent("the answer to %r", call.topic)
            return FAILED

    async def encode_large(self, data: Any) -> Any:
        """Encode a value in slices: one of a connection at a time, and one slice of all
        connections in each turn of the event loop. Returns a value that has other types as it is.

        The handler may change the value meanwhile: a copy of it waits.

        Raises:
            LbmEncodeError: it has no encoding. CallRefused: too many answers wait.
        """
        try:
            copy = marshal.dumps(data)
        except ValueError:
            return data
        account = self._live.core.answers
        if not account.has_room(len(copy)):
            raise CallRefused(ResultCode.OVERLOADED)
        account.charge(len(copy))
        try:
            async with self._one:
                return await self._sliced(copy)
        finally:
            account.release(len(copy))

    async def _sliced(self, copy: bytes) -> Encoded:
        turns, pieces = self._handlers.encoding, list[bytes]()
        async with turns:
            value = marshal.loads(copy)  # noqa: S302 - `dumps` made these bytes
        slices = encode_slices(value, SLICE)
        while True:
            async with turns:
                piece = next(slices, None)
            if piece is None:
                return Encoded(b"".join(pieces))
            pieces.append(piece)

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
