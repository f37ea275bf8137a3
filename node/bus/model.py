"""Plain records that enter and leave a store, the same for every store.

Ids are text (`identifiers.py`), times seconds since 1970 (UTC), durations seconds.
"""

from dataclasses import dataclass
from typing import NamedTuple

from parley._node.bus.data import Data


class NewEvent(NamedTuple):
    """An event to be published. `body` is `data` as JSON; `key` the idempotency key."""

    name: str
    data: Data
    body: str
    key: str | None = None
    version: int = 1


class Published(NamedTuple):
    """The id of a published event. `duplicate`: an event with its key existed, and the id is that
    event's."""

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
    """An event handed out to a consumer: it is pending until it is acknowledged. `attempt` counts
    the deliveries, from 1."""

    event: StoredEvent
    attempt: int


class Failure(NamedTuple):
    """One failed attempt: its consumer, time, and error (one bounded line)."""

    attempt: int
    consumer: str
    at: float
    error: str


class StreamInfo(NamedTuple):
    """A stream: `size` is an estimate in bytes; the ids of an empty stream are None."""

    name: str
    length: int
    size: int
    first_id: str | None
    last_id: str | None


class GroupInfo(NamedTuple):
    """A group of one stream. `lag` is the number of events it was never handed (None: unknown),
    `pending` the number of unacknowledged events, `last_id` the last event handed out.
    `redelivered` and `dead_lettered` count since the group was created."""

    stream: str
    name: str
    lag: int | None
    pending: int
    redelivered: int
    dead_lettered: int
    consumers: int
    last_id: str


class ConsumerInfo(NamedTuple):
    """A consumer of a group; `pending` is the number of events it holds, `idle` the seconds since
    its last request."""

    name: str
    pending: int
    idle: float


class PendingInfo(NamedTuple):
    """An unacknowledged event. `idle` is the seconds since it was handed out, `due_in` the seconds
    until it is handed out again, None while a consumer holds it. A due event has no consumer:
    `consumer` is empty."""

    id: str
    consumer: str
    attempt: int
    idle: float
    due_in: float | None


class Trim(NamedTuple):
    """The bounds of a stream: number of events, first id and bytes. None means no bound;
    `approximate` lets a store keep slightly more where that is cheaper."""

    max_length: int | None = None
    before: str | None = None
    max_bytes: int | None = None
    approximate: bool = False


@dataclass(slots=True)
class Counters:
    """Events of one `Bus` by outcome in this process, including those of peers if it is offered to
    them. The numbers only increase.

    Attributes:
        published: stored; duplicates are not counted.
        delivered: handed out, for the first time or again.
        acknowledged: recorded as processed.
        failed: attempts that were refused or ended in an exception.
        retried: delivered a second or later time.
        dead_lettered: moved to the dead letters.
    """

    published: int = 0
    delivered: int = 0
    acknowledged: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
