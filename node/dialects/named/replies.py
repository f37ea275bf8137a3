"""What comes in reply to a byte-exact named event of ours."""

from parley._lbm.codec import Encodable, Value
from parley._node.dialects.named.codec import BromineEvent, BromineType
from parley._node.messaging.named_events import Reply
from parley._node.messaging.payloads import FormattedPayload


class NamedReply(Reply):
    """A reply to an event of ours: `event` as it came. `last` says that it came with the End.

    Nothing on the wire says what its bytes are, so the reader chooses: `data` takes the first
    byte for a format id, `raw` and `tandem` take all of them.
    """

    __slots__ = ("event", "formatted")

    def __init__(self, event: BromineEvent) -> None:
        self.formatted = given = FormattedPayload(event.data)
        last = event.type is BromineType.END
        super().__init__(event.data, given.format, None, event.name, last, event.namespace)
        self.event = event

    @property
    def data(self) -> Value:
        """The value in the format that the first byte says, as of a `FormattedPayload`."""
        return self.formatted.data

    def cells(self) -> dict[int, Encodable]:
        """The cells of a native event: raw bytes, as of a `FormattedPayload`."""
        return self.formatted.cells()
