"""The records that stores accept and return, the same for every store.

IDs are text (`identifiers.py`), times are seconds since 1970 (UTC), and durations are seconds.
"""

from dataclasses import dataclass
from typing import NamedTuple

from parley._node.bus.data import Data


class NewEvent(NamedTuple):
    """An event to be published. `body` is `data` as JSON, `key` the idempotency key."""

    name: str
    data: Data
    body: str
    key: str | None = None
    version: int = 1


class Published(NamedTuple):
    """The ID of a published event.

    If `duplicate` is True, an event with the same key existed, and `id` is its ID.
    """

    id: str
    duplicate: bool = False


class StoredEvent(NamedTuple):
    """A stored event. `key` is None if it was published without one."""

    id: str
    name: str
    body: str
    key: str | None = None
    version: int = 1


class Delivery(NamedTuple):
    """A delivery of an event to a consumer. It is pending until it is acknowledged.

    `attempt` counts the deliveries from 1.
    """

    event: StoredEvent
    attempt: int


class Failure(NamedTuple):
    """One failed attempt: its consumer, time, and error (one line of limited length)."""

    attempt: int
    consumer: str
    at: float
    error: str


class StreamInfo(NamedTuple):
    """A stream. `size` is an estimate in bytes; the IDs of an empty stream are None."""

    name: str
    length: int
    size: int
    first_id: str | None
    last_id: str | None


class GroupInfo(NamedTuple):
    """A group of one stream.

    `lag` is the number of events that it has not received yet (None: unknown), `pending` the number
    of unacknowledged events, `last_id` the last event delivered. `redelivered` and `dead_lettered`
    count since the group was created.
    """

    stream: str
    name: str
    lag: int | None
    pending: int
    redelivered: int
    dead_lettered: int
    consumers: int
    last_id: str


class ConsumerInfo(NamedTuple):
    """A consumer of a group.

    `pending` is the number of its unacknowledged events, `idle` the seconds since its last request.
    """

    name: str
    pending: int
    idle: float


class PendingInfo(NamedTuple):
    """An unacknowledged event.

    `idle` is the seconds since its delivery. `due_in` is the seconds until it is redelivered, or
    None while a consumer has it. `consumer` is empty for an event that waits for redelivery.
    """

    id: str
    consumer: str
    attempt: int
    idle: float
    due_in: float | None


class Trim(NamedTuple):
    """The limits of a stream: number of events, first ID and bytes; None: unlimited.

    With `approximate`, a store may keep slightly more events if that is cheaper.
    """

    max_length: int | None = None
    before: str | None = None
    max_bytes: int | None = None
    approximate: bool = False


@dataclass(slots=True)
class Counters:
    """Counters of one `Bus` in this process. They include the requests of peers, and only increase.

    Attributes:
        published: events stored, without duplicates.
        delivered: events delivered, including redeliveries.
        acknowledged: events recorded as processed.
        failed: attempts that were refused or ended in an exception.
        retried: events delivered a second or later time.
        dead_lettered: events that became dead letters.
    """

    published: int = 0
    delivered: int = 0
    acknowledged: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
