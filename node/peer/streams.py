"""Runs an application's handlers for the streams that one peer opens.

Each stream gets an end, whatever its handler does: it is closed, or reset with a code.
"""

import logging
from contextlib import suppress
from typing import Final

from node.errors import PeerClosedError, StreamResetError
from node.handlers.registry import Entry, Handlers
from node.handlers.rules import permitted
from node.handlers.running import log_failure
from node.logs import one_line
from node.messaging.application_events import ANSWERING, APPLICATION
from node.messaging.topics import LABEL
from node.protocol.account import STREAM_HANDLER_WEIGHT
from node.protocol.codes import BUS_LABEL, RESERVED_LABELS, CloseCode
from node.protocol.errors import LocalProtocolError
from node.protocol.limits import UNANSWERED_REQUESTS
from node.remote.access import log_refused
from node.remote.live import LiveConnection
from node.streams.stream import Stream, StreamHandler
from node.streams.table import StreamTable

logger = logging.getLogger("parley.peer")

# Handlers may outlive their streams, of which a peer may open ever more: how many do.
LINGERING_HANDLERS: Final = UNANSWERED_REQUESTS


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
            rules, roles = entry.rules, self._handlers.roles
            if rules and not await permitted(rules, remote, stream.label, roles):
                code = CloseCode.NOT_AUTHORISED
                return
            if entry.slots is not None:
                await entry.slots.acquire(remote, live.backend.waiter)
            try:
                await entry.handler(stream)
            finally:
                if entry.slots is not None:
                    entry.slots.release()
            await stream.aclose()
            code = None
        except (StreamResetError, PeerClosedError) as error:
            # Mostly this stream's own end; a handler may have met that of another one.
            now, why = live.backend.now(), one_line(str(error))
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
        except Exception:
            log_failure(entry, stream.label, remote, "the handler of stream %r")
            code = CloseCode.INTERNAL_ERROR
        finally:
            self._running -= 1
            live.core.account.release(STREAM_HANDLER_WEIGHT)
            if code is not None:
                stream.reset(code)
