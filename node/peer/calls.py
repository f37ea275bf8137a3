"""Runs an application's handlers for what one peer asks: calls, and streams it opens.

One rule: whatever a handler does, its call gets exactly one answer and its stream an
end, and the peer learns a code and a fixed sentence, never the details. Knows the
handlers and their peer; the core's rules are `Answering`'s and the connection's.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from lbm import keys
from lbm.codec import encode
from lbm.errors import LbmEncodeError
from node.errors import PeerClosedError, StreamResetError
from node.handlers.items import send_items
from node.handlers.registry import Entry, Handlers
from node.handlers.rules import permitted
from node.handlers.running import FAILED, Outcome, log_failure, run_handler
from node.logs import one_line
from node.messaging.answering import Answering
from node.messaging.application_events import APPLICATION, BUS_ANSWERING
from node.messaging.formats import FormatError
from node.messaging.pending import IncomingCall
from node.messaging.topics import LABEL
from node.protocol.account import STREAM_HANDLER_WEIGHT
from node.protocol.codes import BUS_LABEL, CloseCode, ResultCode, Supercategory
from node.protocol.errors import LocalProtocolError
from node.protocol.limits import ANSWER_PATIENCE, UNANSWERED_REQUESTS
from node.remote.requests import Call
from node.streams.stream import Stream

if TYPE_CHECKING:
    from node.peer.peer import Peer

logger = logging.getLogger("parley.peer")

CallHandler = Callable[[Call], Any]
StreamHandler = Callable[[Stream], Awaitable[None]]

# Handlers of streams may outlive these, of which a peer may open ever more: how many do.
LINGERING_HANDLERS: Final = UNANSWERED_REQUESTS


class Serving:
    """The handlers of one peer. `draining` takes nothing new.

    `supercategory` is that of what the peer sends us, once the handshake is over.
    """

    __slots__ = ("_handlers", "_peer", "_stream_handlers", "draining", "supercategory")

    def __init__(self, peer: "Peer", handlers: Handlers) -> None:
        self._peer = peer
        self._handlers = handlers
        self._stream_handlers = 0
        self.draining = False
        self.supercategory = Supercategory.PEER_TO_PEER

    # Calls.

    def find_call(self, topic: str) -> ResultCode:
        """Whether a call of `topic` may run, else the code that refuses it."""
        entry = self._handlers.calls.find(topic)
        if entry is None:
            return ResultCode.TOPIC_NOT_FOUND
        if not entry.takes(self.supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        return ResultCode.OVERLOADED if self.draining else ResultCode.ACCEPTED

    def run_call(self, call: IncomingCall) -> None:
        """Run the handler of a call that `find_call` let pass."""
        entry = self._handlers.calls.find(call.topic)
        call.runner = self._peer.backend.spawn(self._serve_call, entry, call)

    async def _serve_call(self, entry: Entry[CallHandler], call: IncomingCall) -> None:
        peer = self._peer
        call.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            made = run_handler(
                entry,
                Call(peer, call),
                peer,
                call.topic,
                self._handlers.roles,
                lambda items: self._stream_answer(call, items),
            )
            outcome = await self.room(call, *await made)
        finally:
            # Also when it was cancelled: each call gets its one answer.
            self.answer(call, *outcome)

    async def _stream_answer(self, call: IncomingCall, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Send what the handler yields as Chunks, no faster than they are read."""

        def encode_item(item: Any) -> bytes:
            return encode({} if item is None else {keys.DATA: item})

        chunk = self._peer.answering.chunk
        return await send_items(self._peer, call, items, encode_item, chunk)

    async def room(self, call: IncomingCall, code: int, data: Any) -> Outcome:
        """Wait until there is room to write an answer: what a handler has made is not thrown
        away because others were faster. Not for ever, and not with more than may wait so.
        Returns what is to be given to `answer`."""
        driver, account = self._peer.driver, self._peer.core.answers
        if driver.has_room or call.answered:
            return code, data
        try:
            size = self._peer.answering.make(call, code, data)
        except (LbmEncodeError, FormatError):
            return code, data  # `answer` says so
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

    def answer(self, call: IncomingCall, code: int, data: Any = None) -> None:
        """Answer a request of any kind, if it must be without what has no encoding."""
        answering: Answering = self._peer.answering
        try:
            answering.answer(call, code, data)
        except (LbmEncodeError, FormatError):
            self.log_unsent("the answer to %r", call.topic)
            answering.answer(call, *FAILED)
        self._peer.call_ended()

    def log_unsent(self, what: str, name: str) -> None:
        """Log the exception that is being handled: an answer has no encoding."""
        now, text = self._peer.backend.now(), what + " has no encoding"
        self._handlers.unsent.log(logger, logging.ERROR, now, text, name, exc_info=True)

    # Streams.

    def stream_opened(self, stream_id: int, label: str) -> None:
        """Run the handler of a stream that the peer opened, or refuse it."""
        entry = self._handlers.find_stream(label)
        if self.draining or label.startswith(LABEL):
            self._refuse(stream_id, CloseCode.REFUSED)
        elif entry is None:
            self._refuse(stream_id, CloseCode.NO_HANDLER)
        elif not entry.takes(self.supercategory):
            self._refuse(stream_id, CloseCode.WRONG_SUPERCATEGORY)
        elif (
            self._stream_handlers >= self._peer.limits.max_streams + LINGERING_HANDLERS
            or not self._peer.core.account.has_room(STREAM_HANDLER_WEIGHT)
        ):
            self._refuse(stream_id, CloseCode.OVERLOADED)
        else:
            self._stream_handlers += 1
            self._peer.core.account.charge(STREAM_HANDLER_WEIGHT)
            carries = BUS_ANSWERING if label == BUS_LABEL else APPLICATION
            stream = self._peer.streams.add(stream_id, label, entry.answers, carries)
            self._peer.backend.spawn(self._serve_stream, entry, stream)

    def _refuse(self, stream_id: int, code: CloseCode) -> None:
        with suppress(LocalProtocolError):  # we are closing: Close will tell
            self._peer.core.reset_stream(stream_id, code)

    async def _serve_stream(self, entry: Entry[StreamHandler], stream: Stream) -> None:
        code: CloseCode | None = CloseCode.CANCELLED
        try:
            rules, roles = entry.rules, self._handlers.roles
            if rules and not await permitted(rules, self._peer, stream.label, roles):
                code = CloseCode.NOT_AUTHORISED
                return
            if entry.slots is not None:
                await entry.slots.acquire(self._peer, self._peer.backend.waiter)
            try:
                await entry.handler(stream)
            finally:
                if entry.slots is not None:
                    entry.slots.release()
            await stream.aclose()
            code = None
        except (StreamResetError, PeerClosedError) as error:
            # Mostly this stream's own end; a handler may have met that of another one.
            now, why = self._peer.backend.now(), one_line(str(error))
            ended = self._handlers.ended
            ended.log(logger, logging.INFO, now, "stream %r ended: %s", stream.label, why)
        except Exception:
            log_failure(entry, stream.label, self._peer, "the handler of stream %r")
            code = CloseCode.INTERNAL_ERROR
        finally:
            self._stream_handlers -= 1
            self._peer.core.account.release(STREAM_HANDLER_WEIGHT)
            if code is not None:
                stream.reset(code)
