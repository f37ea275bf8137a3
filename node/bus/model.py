"""What goes into a store, and what comes out of it: plain records, the same for every store.

Ids are text (`ids.py`), times seconds since 1970 (UTC), durations seconds.
"""

from dataclasses import dataclass
from typing import NamedTuple

from parley._node.bus.data import Data


class NewEvent(NamedTuple):
    """An event to be published. `body` is `data` as JSON (`body.py`); `key` the idempotency key."""

    name: str
    data: Data
    body: str
    key: str | None = None
    version: int = 1


class Published(NamedTuple):
    """The outcome: `duplicate` if an event with its key was there already; `id` is then that
    event's."""

    id: str
    duplicate: bool = False


class StoredEvent(NamedTuple):
    """An event as it is kept. `key` is None if it was published without one."""

    id: str
    name: str
    body: str
    key: str | None = None
    version: int = 1


class Delivery(NamedTuple):
    """An event that is a consumer's to process: it is pending until it is acknowledged.

    `attempt` is 1 at first and one more with each time that it is handed out.
    """

    event: StoredEvent
    attempt: int


class Failure(NamedTuple):
    """One attempt that failed: by which consumer, when, and why (one line, bounded)."""

    attempt: int
    consumer: str
    at: float
    error: str


class StreamInfo(NamedTuple):
    """A stream: `size` is bytes, roughly; the ids of an empty one are None."""

    name: str
    length: int
    size: int
    first_id: str | None
    last_id: str | None


class GroupInfo(NamedTuple):
    """A group of one stream. `lag` is how many events it was never handed (None: the store cannot
    say); `pending` how many it was and has not acknowledged; `last_id` the last one handed out.
    `redelivered` and `dead_lettered` count since the group was made."""

    stream: str
    name: str
    lag: int | None
    pending: int
    redelivered: int
    dead_lettered: int
    consumers: int
    last_id: str


class ConsumerInfo(NamedTuple):
    """A consumer of a group; `pending` is how many events it holds, `idle` seconds since it last
    asked for anything."""

    name: str
    pending: int
    idle: float


class PendingInfo(NamedTuple):
    """An event that was handed out and not acknowledged. `idle` is seconds since; `due_in` seconds
    until it is handed out again, None while a consumer holds it. An event that is due belongs to
    no consumer: then `consumer` is empty."""

    id: str
    consumer: str
    attempt: int
    idle: float
    due_in: float | None


class Trim(NamedTuple):
    """What to keep of a stream: at most so many events, none before an id, at most so many bytes.
    None means no bound; `approximate` lets a store keep a few more where that is cheaper."""

    max_length: int | None = None
    before: str | None = None
    max_bytes: int | None = None
    approximate: bool = False


@dataclass(slots=True)
class Counters:
    """Events of one `Bus`, by what became of them in this process, and on a bus that it offers to
    peers by what these did. The numbers only go up.

    Attributes:
        published: were stored; one that was there already is not counted.
        delivered: were fetched to be processed, again or for the first time.
        acknowledged: were recorded as done.
        failed: attempts that failed: refused, or left by an exception.
        retried: were delivered a second or later time.
        dead_lettered: were set aside.
    """

    published: int = 0
    delivered: int = 0
    acknowledged: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
