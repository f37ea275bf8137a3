"""Replies to byte-exact named events."""

from parley._lbm.codec import Encodable, Value
from parley._node.dialects.named.codec import BromineEvent, BromineType
from parley._node.messaging.named_events import Reply
from parley._node.messaging.payloads import FormattedPayload


class NamedReply(Reply):
    """A reply: `event` is the received event, and `last` is True if it was an End.

    The wire doesn't carry a format: `data` interprets the first byte as a format id, while `raw`
    and `tandem` use all bytes.
    """

    __slots__ = ("event", "formatted")

    def __init__(self, event: BromineEvent) -> None:
        self.formatted = given = FormattedPayload(event.data)
        last = event.type is BromineType.END
        super().__init__(event.data, given.format, None, event.name, last, event.namespace)
        self.event = event

    @property
    def data(self) -> Value:
        return self.formatted.data

    def cells(self) -> dict[int, Encodable]:
        return self.formatted.cells()
