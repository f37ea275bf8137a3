"""Runs an application's handlers for what one peer asks: calls, and streams it opens.

One rule: whatever a handler does, its call gets exactly one answer and its stream an
end, and the peer learns a code and a fixed sentence, never the details. Knows the
handlers and their peer; the core's rules are `Calls`' and the connection's.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lbm.errors import LbmEncodeError
from node.call import Call
from node.errors import RESULT_SENTENCES, CallRefused, PeerClosedError, StreamResetError
from node.messaging.calls import Calls
from node.messaging.pending import IncomingCall
from node.protocol.codes import CloseCode, ResultCode
from node.protocol.errors import LocalProtocolError
from node.stream import Stream

if TYPE_CHECKING:
    from node.peer import Peer

logger = logging.getLogger("parley.peer")

CallHandler = Callable[[Call], Any]
StreamHandler = Callable[[Stream], Awaitable[None]]

_FAILED: Final = (ResultCode.HANDLER_FAILED, RESULT_SENTENCES[ResultCode.HANDLER_FAILED])


class Serving:
    """The handlers of one peer. `draining` takes nothing new."""

    __slots__ = ("_call_handlers", "_peer", "_stream_handlers", "calls", "draining")

    def __init__(
        self,
        peer: "Peer",
        call_handlers: Mapping[str, CallHandler],
        stream_handlers: Mapping[str, StreamHandler],
    ) -> None:
        self._peer = peer
        self._call_handlers = call_handlers
        self._stream_handlers = stream_handlers
        self.calls = Calls(
            peer.core,
            self._has_handler,
            self._run_call,
            self._stop_call,
            size_limit=peer.config.waiting_bytes,
        )
        self.draining = False

    # Calls.

    def _has_handler(self, topic: str) -> bool:
        return topic in self._call_handlers

    def _run_call(self, call: IncomingCall) -> None:
        if self.draining:
            self.calls.answer(call, ResultCode.OVERLOADED)
            return
        handler = self._call_handlers[call.topic]
        call.runner = self._peer.backend.spawn(self._handle, handler, call)

    def _stop_call(self, call: IncomingCall) -> None:
        if call.runner is not None:
            call.runner.cancel()

    async def _handle(self, handler: CallHandler, call: IncomingCall) -> None:
        code: int = ResultCode.CANCELLED
        data: Any = None
        try:
            result = handler(Call(self._peer, call))
            data = await result if inspect.isawaitable(result) else result
            code = ResultCode.ACCEPTED
        except CallRefused as refused:
            if refused.received:  # by a call of the handler's own: none of the caller's business
                logger.exception("the handler of %r failed", call.topic)
                code, data = _FAILED
            else:
                code, data = refused.code, refused.data
        except Exception:
            logger.exception("the handler of %r failed", call.topic)
            code, data = _FAILED
        finally:
            # Also when it was cancelled: each call gets its one answer.
            self._answer(call, code, data)

    def _answer(self, call: IncomingCall, code: int, data: Any) -> None:
        try:
            self.calls.answer(call, code, data)
        except LbmEncodeError:
            logger.exception("the answer to %r has no encoding", call.topic)
            self.calls.answer(call, *_FAILED)
        self._peer.call_ended()

    # Streams.

    def stream_opened(self, stream_id: int, label: str) -> None:
        """Run the handler of a stream that the peer opened, or refuse it."""
        handler = self._stream_handlers.get(label)
        if handler is None or self.draining:
            refused = self.draining or label.startswith("topic:")
            try:
                code = CloseCode.REFUSED if refused else CloseCode.NO_HANDLER
                self._peer.core.reset_stream(stream_id, code)
            except LocalProtocolError:
                pass  # we are closing: Close will tell
            return
        stream = self._peer.streams.add(stream_id, label)
        self._peer.backend.spawn(self._serve_stream, handler, stream)

    async def _serve_stream(self, handler: StreamHandler, stream: Stream) -> None:
        code: CloseCode | None = CloseCode.CANCELLED
        try:
            await handler(stream)
            await stream.aclose()
            code = None
        except (StreamResetError, PeerClosedError) as error:
            # Mostly this stream's own end; a handler may have met that of another one.
            logger.info("stream %r ended: %s", stream.label, error)
        except Exception:
            logger.exception("the handler of stream %r failed", stream.label)
            code = CloseCode.INTERNAL_ERROR
        finally:
            if code is not None:
                stream.reset(code)
