"""What goes into a store, and what comes out of it: plain records, no behaviour.

One rule: a record is the same whichever store it came from. Ids are text (`ids.py`), times
seconds since 1970 (UTC), durations seconds. Knows no store.
"""

from typing import Any, NamedTuple

from node.bus.body import Data


class NewEvent(NamedTuple):
    """An event to be published. `body` is `data` as JSON (`body.py`); `key` the idempotency key."""

    name: str
    data: Data
    body: str
    key: str | None = None
    version: int = 1


class Published(NamedTuple):
    """What became of it. `duplicate`: one with its key was there, and `id` is that one's."""

    id: str
    duplicate: bool = False


class StoredEvent(NamedTuple):
    """An event as it is kept. `key` is None where it was published without one."""

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
    """One attempt that came to nothing: by whom, when, and why (one line, bounded)."""

    attempt: int
    consumer: str
    at: float
    error: str


class StreamInfo(NamedTuple):
    """A stream: `size` is bytes, roughly; ids are None of an empty one."""

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
    until it is handed out again, None while a consumer holds it. What is due is nobody's: then
    `consumer` is empty."""

    id: str
    consumer: str
    attempt: int
    idle: float
    due_in: float | None


class Trim(NamedTuple):
    """What to keep of a stream: at most so many events, none before an id, at most so many bytes.
    None is no bound; `approximate` lets a store keep a few more where that is cheaper."""

    max_length: int | None = None
    before: str | None = None
    max_bytes: int | None = None
    approximate: bool = False


def dead_data(
    event: StoredEvent, group: str, history: list[Failure], data: dict[str, Any] | None
) -> dict[str, Any]:
    """The data of a dead letter: the event as it was, for whom, and what became of each attempt.

    `data` is the event's, None if it cannot be read; then its body stands there as it is.
    """
    return {
        "id": event.id,
        "name": event.name,
        "idempotency_key": event.key,
        "version": event.version,
        "data": data,
        **({} if data is not None else {"body": event.body}),
        "group": group,
        "attempts": history[-1].attempt if history else 0,
        "history": [failure._asdict() for failure in history],
    }
