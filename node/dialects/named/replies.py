"""A reply to an event of ours, as this dialect has it.

One rule: nothing says what its bytes are, so that who reads it says: `data` takes the
first for a format id, `raw` and `tandem` take all of them.
"""

from node.dialects.named.codec import EventType, NamedEvent
from node.messaging.emits import Reply
from node.messaging.payloads import FormattedPayload


class NamedReply(FormattedPayload, Reply):
    """A reply: `event` as it came. `last` says that it came with the End."""

    __slots__ = ("event",)

    def __init__(self, event: NamedEvent) -> None:
        super().__init__(event.data)
        self.event = event
        self.name = event.name
        self.namespace = event.namespace
        self.last = event.type is EventType.END


def cost_of(event: NamedEvent) -> int:
    """What an event holds while it waits, in bytes."""
    return len(event.data) + len(event.name) + len(event.namespace)
