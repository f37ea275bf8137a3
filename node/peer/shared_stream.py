"""`SharedStream`: one stream of notes that several subscriptions of this program read.

Credit returns to the publisher as the fastest subscription reads. Each subscription has its own
buffer: one that falls more than two windows behind the fastest loses its subscription, and the
others continue.
"""

from collections.abc import Callable
from typing import Protocol, Self

from parley._node.messaging.inbox import NoteInbox
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import StreamReset

# Windows of the stream by which a subscription can be behind the fastest.
MOST_BEHIND = 2
TOO_SLOW = "another subscription of this program reads this topic faster"


class SharedReader(Protocol):
    """A subscription that reads a shared stream."""

    inbox: NoteInbox

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes will come."""

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""


class SharedStream:
    """The subscriptions that read the stream `stream`. `consume` returns credit, as bytes of cost
    and a number of events; `window` is the stream's, in bytes of cost."""

    def __init__(
        self, stream: int, window: int, consume: Callable[[int, int], None], first: SharedReader
    ) -> None:
        self.first = first
        self._stream = stream
        self._most_behind = MOST_BEHIND * window
        self._consume = consume
        # The costs of events that came and for which no credit was returned. At first these are
        # the ones that the first subscription alone got.
        self._costs = first.inbox.unread_costs
        self._came, self._returned = sum(self._costs), 0
        self._members = {first: 0}  # the cost of what each has read, or not got

    @property
    def inbox(self) -> Self:
        """Takes what comes, in place of one subscription's inbox."""
        return self

    @property
    def closed(self) -> bool:
        """Whether no subscription reads it any longer."""
        return not self._members

    def add(self, member: SharedReader) -> None:
        """Give a subscription all that comes from now on."""
        self._members[member] = self._came
        # Else it would wait for credit that depends on what others read.
        self._progress()

    def remove(self, member: SharedReader) -> bool:
        """Give a subscription nothing more; returns whether others read on."""
        self._members.pop(member, None)
        if not self._members:
            self._return(self._came)
        return bool(self._members)

    def put(self, subcategory: int, payload: bytes, cost: int) -> bool:
        """Give an event to all; False if there is no room for one that cost nothing."""
        self._came += cost
        if cost:
            self._costs.append(cost)
        took = [member.inbox.put(subcategory, payload, cost) for member in list(self._members)]
        if not self._members:
            self._return(self._came)
            return True
        return any(took)

    def read(self, member: SharedReader, cost: int) -> None:
        """A subscription has read events of this cost."""
        if member in self._members:
            self._members[member] += cost
            self._progress()

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes will come."""
        for member in list(self._members):
            member.ended(reset)

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""
        for member in list(self._members):
            member.lost(code, text)

    def _progress(self) -> None:
        """Return credit for what the fastest has read, and end those that are too slow."""
        fastest = max(self._members.values())
        self._return(fastest)
        least = fastest - self._most_behind
        for slow in [one for one, read in self._members.items() if read < least]:
            del self._members[slow]
            slow.ended(StreamReset(self._stream, CloseCode.SLOW_CONSUMER, TOO_SLOW))

    def _return(self, upto: int) -> None:
        """Return the credit of all events up to this sum of costs."""
        cost = count = 0
        while count < len(self._costs) and self._returned + cost < upto:
            cost += self._costs[count]
            count += 1
        if count:
            del self._costs[:count]
            self._returned += cost
            self._consume(cost, count)
