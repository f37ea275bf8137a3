"""Runs an application's handlers for the streams that one peer opens.

Each stream is closed when its handler returns, or reset with a code when the handler fails.
"""

import logging
from contextlib import suppress
from typing import Final

from parley._node.errors import (
    APPLICATION_ERRORS,
    CallRefused,
    PeerClosedError,
    StreamResetError,
    sole_error,
)
from parley._node.handlers.interceptors import Chain, Intercepted
from parley._node.handlers.invoke import log_failure
from parley._node.handlers.permissions import is_permitted
from parley._node.handlers.registry import Entry, Handlers
from parley._node.logs import one_line
from parley._node.messaging.application_events import ANSWERING, APPLICATION
from parley._node.messaging.topics import LABEL
from parley._node.protocol.codes import BUS_LABEL, RESERVED_LABELS, CloseCode, ResultCode
from parley._node.protocol.errors import LocalError
from parley._node.protocol.limits import UNANSWERED_REQUESTS
from parley._node.protocol.memory_budget import STREAM_HANDLER_WEIGHT
from parley._node.remote import access_log as access
from parley._node.remote.access_log import log_refused
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream import Stream, StreamHandler
from parley._node.remote.stream_table import StreamTable

logger = logging.getLogger("parley.peer")

# How many handlers can outlive their streams. Without a limit, a peer could start more and more.
LINGERING_HANDLERS: Final = UNANSWERED_REQUESTS
# The reset code for a CallRefused of a permission check, handler or interceptor.
_RESETS: Final[dict[int, CloseCode]] = {
    ResultCode.OVERLOADED: CloseCode.OVERLOADED,
    ResultCode.NOT_AUTHORISED: CloseCode.NOT_AUTHORISED,
}


class StreamHandlers:
    """The handlers of the streams of one peer."""

    __slots__ = ("_handlers", "_live", "_running", "_streams")

    def __init__(self, live: LiveConnection, handlers: Handlers, streams: StreamTable) -> None:
        self._live = live
        self._handlers = handlers
        self._streams = streams
        self._running = 0

    def opened(self, stream_id: int, label: str) -> None:
        """Run the handler of a stream that the peer opened, or refuse the stream."""
        live = self._live
        account = live.core.account
        entry = self._handlers.find_stream(label)
        if live.draining or label.startswith(LABEL):
            self._refuse(stream_id, label, CloseCode.REFUSED)
        elif live.path and not self._is_exported(label):
            self._refuse(stream_id, label, CloseCode.NOT_AUTHORISED)
        elif entry is None:
            self._refuse(stream_id, label, CloseCode.NO_HANDLER)
        elif not entry.takes(live.supercategory):
            self._refuse(stream_id, label, CloseCode.WRONG_SUPERCATEGORY)
        elif self._running >= live.limits.max_streams + LINGERING_HANDLERS or not account.has_room(
            STREAM_HANDLER_WEIGHT
        ):
            self._refuse(stream_id, label, CloseCode.OVERLOADED)
        else:
            self._running += 1
            account.charge(STREAM_HANDLER_WEIGHT)
            carries = ANSWERING.get(label, APPLICATION)
            stream = self._streams.add(stream_id, label, entry.answers, carries)
            live.backend.spawn(self._serve, entry, stream)

    def _is_exported(self, label: str) -> bool:
        """Whether a peer that is connected through a tunnel may open this stream.

        On a `bus` stream, the bus checks each request.
        """
        if label in RESERVED_LABELS:
            return label == BUS_LABEL
        return self._handlers.exported(label)

    def _refuse(self, stream_id: int, label: str, code: CloseCode) -> None:
        live = self._live
        log_refused(self._handlers.refused, live.remote, "stream", label, code, live.backend.now())
        with suppress(LocalError):  # The connection is closing, and the Close ends the stream.
            live.core.reset_stream(stream_id, code)

    async def _serve(self, entry: Entry[StreamHandler], stream: Stream) -> None:
        live = self._live
        code: CloseCode | None = CloseCode.CANCELLED
        began = live.backend.now()
        try:
            if entry.chain:
                await self._run_intercepted(entry, entry.chain, stream)
            else:
                await self._run(entry, stream)
            await stream.aclose()
            code = None
        except APPLICATION_ERRORS as error:
            failure = sole_error(error)
            if isinstance(failure, StreamResetError | PeerClosedError):
                # Usually this stream was reset or lost, but the handler may also use other streams.
                now, why = live.backend.now(), one_line(str(failure))
                ended = self._handlers.ended
                ended.log(
                    logger,
                    logging.INFO,
                    now,
                    "stream %r ended: %s",
                    stream.label,
                    why,
                    extra={"event": "stream.ended", "label": stream.label},
                )
            elif isinstance(failure, CallRefused) and not failure.received:
                code = _RESETS.get(failure.code, CloseCode.REFUSED)
            else:  # Includes a refusal by another node that the handler called.
                log_failure(entry, stream.label, live.remote, "the handler of stream %r")
                code = CloseCode.INTERNAL_ERROR
        finally:
            if access.logger.isEnabledFor(logging.DEBUG):
                seconds = live.backend.now() - began
                access.log_answered(live.remote, "stream", stream.label, code or 0, seconds)
            self._running -= 1
            live.core.account.release(STREAM_HANDLER_WEIGHT)
            if code is not None:
                stream.reset(code)

    async def _run(self, entry: Entry[StreamHandler], stream: Stream) -> None:
        """Check permissions, wait for a slot and run the handler.

        Raises:
            CallRefused: the permissions do not allow it; exceptions of the handler also propagate.
        """
        remote, slots = self._live.remote, entry.slots
        if entry.rules and not await is_permitted(
            entry.rules, remote, stream.label, self._handlers.roles
        ):
            raise CallRefused(ResultCode.NOT_AUTHORISED)
        if slots is not None:
            await slots.acquire(remote, self._live.backend.waiter)
        try:
            await entry.handler(stream)
        finally:
            if slots is not None:
                slots.release()

    async def _run_intercepted(
        self, entry: Entry[StreamHandler], chain: Chain, stream: Stream
    ) -> None:
        async def proceed(_: Intercepted) -> None:
            await self._run(entry, stream)

        one = Intercepted(chain, self._live.remote, stream.label, request=stream)
        await chain.run(one, proceed)
