"""One SimProto connection, either side: sim packets on dialogs.

One rule: what is no packet of the document ends the connection; what a packet asks for
is decided above. Knows neither topics nor handlers.
"""

from typing import NamedTuple

from node.dialects.simproto.dialogs import Asker, Dialogs
from node.dialects.simproto.packets import (
    RESPONSE_HEADS,
    parse_request,
    serialise_request,
)


class RequestReceived(NamedTuple):
    """A request of theirs, to be answered once by `respond`. `topic` is None for one that
    can be no topic here: no UTF-8, or longer than `longest_name`."""

    dialog: int
    kind: int
    topic: str | None
    data: bytes


class SimProtoCore(Dialogs):
    """One connection. Its reports are `RequestReceived`, `PongReceived` and
    `ConnectionEnded`; responses go to the requests that they answer."""

    __slots__ = ()

    def ask(self, kind: int, topic: str, data: bytes, now: float, asker: Asker) -> int:
        """Send a request; returns its dialog.

        Raises:
            LocalProtocolError: not now, or too long; as `request` and `serialise_request`.
            ValueError: the topic has no UTF-8.
        """
        prefix = serialise_request(kind, topic, self.limits.longest_name)
        return self.request(prefix, data, now, asker)

    def answer(self, dialog: int, code: int, data: bytes, now: float) -> None:
        """Answer a request of theirs; `code` is 0..255.

        Raises:
            PayloadTooLargeError: `data` is too long; it is still to be answered.
        """
        self.respond(dialog, RESPONSE_HEADS[code], data, now)

    def _request_received(self, dialog: int, payload: memoryview) -> None:
        kind, name, data = parse_request(payload)
        topic: str | None = None
        if len(name) <= self.limits.longest_name:
            try:
                topic = str(name, "utf-8")
            except UnicodeDecodeError:
                topic = None  # matches no topic: ours are text
        self.happened.append(RequestReceived(dialog, kind, topic, data))
