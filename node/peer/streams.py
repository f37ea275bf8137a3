"""Runs an application's handlers for the streams that one peer opens.

Each stream gets an end, whatever its handler does: it is closed, or reset with a code.
"""

import logging
from contextlib import suppress
from typing import Final

from node.errors import CallRefused, PeerClosedError, StreamResetError, sole_error
from node.handlers.interceptors import Chain, Intercepted
from node.handlers.registry import Entry, Handlers
from node.handlers.rules import permitted
from node.handlers.running import log_failure
from node.logs import one_line
from node.messaging.application_events import ANSWERING, APPLICATION
from node.messaging.topics import LABEL
from node.protocol.account import STREAM_HANDLER_WEIGHT
from node.protocol.codes import BUS_LABEL, RESERVED_LABELS, CloseCode, ResultCode
from node.protocol.errors import LocalProtocolError
from node.protocol.limits import UNANSWERED_REQUESTS
from node.remote.access import log_refused
from node.remote.live import LiveConnection
from node.streams.stream import Stream, StreamHandler
from node.streams.table import StreamTable

logger = logging.getLogger("parley.peer")

# Handlers may outlive their streams, of which a peer may open ever more: how many do.
LINGERING_HANDLERS: Final = UNANSWERED_REQUESTS
# How an interceptor refuses a stream, by the code of its CallRefused.
_RESETS: Final[dict[int, CloseCode]] = {
    ResultCode.OVERLOADED: CloseCode.OVERLOADED,
    ResultCode.NOT_AUTHORISED: CloseCode.NOT_AUTHORISED,
}


class StreamHandlers:
    """The handlers of streams, for one peer."""

    __slots__ = ("_handlers", "_live", "_running", "_streams")

    def __init__(self, live: LiveConnection, handlers: Handlers, streams: StreamTable) -> None:
        self._live = live
        self._handlers = handlers
        self._streams = streams
        self._running = 0

    def opened(self, stream_id: int, label: str) -> None:
        """Run the handler of a stream that the peer opened, or refuse it."""
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
        """Whether a peer that came through a tunnel may open it. On a stream `bus` it is each
        request that is asked about."""
        if label in RESERVED_LABELS:
            return label == BUS_LABEL
        return self._handlers.exported(label)

    def _refuse(self, stream_id: int, label: str, code: CloseCode) -> None:
        live = self._live
        log_refused(self._handlers.refused, live.remote, "stream", label, code, live.backend.now())
        with suppress(LocalProtocolError):  # we are closing: Close will tell
            live.core.reset_stream(stream_id, code)

    async def _serve(self, entry: Entry[StreamHandler], stream: Stream) -> None:
        live, remote = self._live, self._live.remote
        code: CloseCode | None = CloseCode.CANCELLED
        try:
            if entry.chain:
                refused = await self._intercepted(entry, entry.chain, stream)
            else:
                refused = await self._admit(entry, stream) if _is_guarded(entry) else None
                if refused is None:
                    try:
                        await entry.handler(stream)
                    finally:
                        _release(entry)
            if refused is not None:
                code = refused
                return
            await stream.aclose()
            code = None
        except Exception as error:
            failure = sole_error(error)
            if isinstance(failure, StreamResetError | PeerClosedError):
                # Mostly this stream's own end; a handler may have met that of another one.
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
            else:
                log_failure(entry, stream.label, remote, "the handler of stream %r")
                code = CloseCode.INTERNAL_ERROR
        finally:
            self._running -= 1
            live.core.account.release(STREAM_HANDLER_WEIGHT)
            if code is not None:
                stream.reset(code)

    async def _admit(self, entry: Entry[StreamHandler], stream: Stream) -> CloseCode | None:
        """Ask the rules, then wait for a slot; returns the code of the Reset if it may not run."""
        remote, roles = self._live.remote, self._handlers.roles
        if not await permitted(entry.rules, remote, stream.label, roles):
            return CloseCode.NOT_AUTHORISED
        if entry.slots is not None:
            await entry.slots.acquire(remote, self._live.backend.waiter)
        return None

    async def _intercepted(
        self, entry: Entry[StreamHandler], chain: Chain, stream: Stream
    ) -> CloseCode | None:
        """Run the handler inside of the interceptors; returns the code of the Reset if the stream
        was refused."""

        async def proceed(_: Intercepted) -> None:
            if await self._admit(entry, stream) is not None:
                raise CallRefused(ResultCode.NOT_AUTHORISED)
            try:
                await entry.handler(stream)
            finally:
                _release(entry)

        one = Intercepted(chain, self._live.remote, stream.label, request=stream)
        try:
            await chain.run(one, proceed)
        except Exception as error:
            refused = sole_error(error)
            if not isinstance(refused, CallRefused) or refused.received:
                raise  # what was received is of a call of the handler's own
            return _RESETS.get(refused.code, CloseCode.REFUSED)
        return None


def _is_guarded(entry: Entry[StreamHandler]) -> bool:
    """Whether anything is to be asked or awaited before its handler."""
    return bool(entry.rules) or entry.slots is not None


def _release(entry: Entry[StreamHandler]) -> None:
    """Give its slot back."""
    if entry.slots is not None:
        entry.slots.release()
