"""Dead letters: events that failed too often, with the history of their attempts.

A history keeps the first entry and the most recent ones, each a line of limited length. Replay
removes a letter only after its event is pending or published again. An interrupted replay can
therefore process one event twice, but never loses one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from parley._node.bus.data import decode_body, encode_value
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import BEFORE_ALL, dead_name, parse_id, split_name
from parley._node.bus.model import Failure, NewEvent, StoredEvent, Trim
from parley._node.bus.store import LazyStore

# How many letters are fetched at a time.
LETTERS: Final = 100
# The maximum number of entries in a history, and of characters in each error.
LONGEST_HISTORY: Final = 32
LONGEST_ERROR: Final = 500
# The error of an attempt that ended without acknowledgement or refusal.
NOT_ACKNOWLEDGED: Final = "not acknowledged"


def error_line(error: str) -> str:
    """Return an error as one line of limited length."""
    return " ".join(error.encode("utf-8", "replace").decode().split())[:LONGEST_ERROR]


def shorten(history: list[Any]) -> None:
    """Remove entries after the first one until the history has its maximum length."""
    if len(history) > LONGEST_HISTORY:
        del history[1 : len(history) - LONGEST_HISTORY + 1]


def dead_data(
    event: StoredEvent, group: str, history: list[Failure], data: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the data of a dead letter: the event, its group, and the outcome of each attempt.

    If `data` is None because it cannot be read, the letter has the event's body instead.
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


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter. Fields that are missing in a letter of another program are empty.

    Example:

        bus = node.bus("sqlite:///bus.db")
        for letter in await bus.dead_letters("shop.order_placed"):
            print(letter.group, letter.attempts, letter.data)

    Attributes:
        id: the ID of the letter itself.
        event_id, name, idempotency_key, version: copied from the event.
        data: the event's data; None if it cannot be read, and then `body` is its text.
        group: the group that failed, with the name that the store uses.
        attempts: the number of deliveries.
        history: the outcome of each attempt, at most 32.
    """

    id: str
    event_id: str
    name: str
    idempotency_key: str | None
    version: int
    data: dict[str, Any] | None
    body: str
    group: str
    attempts: int
    history: tuple[Failure, ...]


def read_letter(stored: StoredEvent) -> DeadLetter:
    """Parse an event of a dead-letter stream."""
    try:
        letter: Mapping[str, Any] = decode_body(stored.body)
    except InvalidEventError:
        letter = {}
    data = letter.get("data")
    body = _text(letter.get("body", stored.body))
    try:
        body = encode_value(data) if isinstance(data, dict) else body
        body.encode()
    except (InvalidEventError, UnicodeEncodeError):  # Such as NaN, which Lightbus writes.
        data, body = None, stored.body
    if not isinstance(data, dict):
        data = None
    key = letter.get("idempotency_key")
    return DeadLetter(
        stored.id,
        _id(letter.get("id")),
        _text(letter.get("name")),
        key if isinstance(key, str) else None,
        _count(letter.get("version"), 1),
        data,
        body,
        _text(letter.get("group")),
        _count(letter.get("attempts"), 0),
        tuple(_failures(letter.get("history"))),
    )


class DeadLetters:
    """The dead letters of one stream."""

    def __init__(self, store: LazyStore, stream: str) -> None:
        """Raise InvalidEventError if `stream` is not the name of an event."""
        split_name(stream)
        self._lazy = store
        self._store = store.store
        self._stream = stream
        self._dead = dead_name(stream)

    async def page(self, count: int, after: str) -> list[DeadLetter]:
        """Return the first `count` letters after an ID; fewer if there are no more."""
        place = str(parse_id(after))
        await self._lazy.opened()
        letters: list[DeadLetter] = []
        while len(letters) < count:
            found = await self._history(place, None, count - len(letters))
            if not found:
                break
            letters += map(read_letter, found)  # A store returns fewer events if they are large.
            place = found[-1].id
        return letters

    async def drop(self, ids: Sequence[str] | None) -> int:
        """Delete the letters with these IDs, or all; return how many existed."""
        wanted = _checked(ids)
        await self._lazy.opened()
        if wanted is None:
            return await self._store.trim(self._dead, Trim(max_length=0))
        return await self._store.drop(self._dead, wanted)

    async def replay(self, ids: Sequence[str] | None, group: str | None) -> list[str]:
        """Replay the letters with these IDs or of a group, or all; return their IDs."""
        wanted = _checked(ids)
        await self._lazy.opened()
        replayed: list[str] = []
        if wanted is not None:
            for id in sorted(set(wanted), key=parse_id):
                found = await self._history(str(parse_id(id).before), id, 1)
                replayed += await self._replay_all(found, group)
            return replayed
        # Exclude letters that are added during the replay.
        infos = await self._store.streams()
        last = next((info.last_id for info in infos if info.name == self._dead), None)
        place = BEFORE_ALL
        while last is not None and (found := await self._history(place, last, LETTERS)):
            place = found[-1].id
            replayed += await self._replay_all(found, group)
        return replayed

    async def _history(self, after: str, until: str | None, count: int) -> list[StoredEvent]:
        return await self._store.history(self._dead, after, until, count, 0.0)

    async def _replay_all(self, found: list[StoredEvent], group: str | None) -> list[str]:
        replayed = []
        for stored in found:
            letter = read_letter(stored)
            if group is not None and letter.group != group:
                continue
            if await self._is_back(letter):
                await self._store.drop(self._dead, [letter.id])
                replayed.append(letter.id)
        return replayed

    async def _is_back(self, letter: DeadLetter) -> bool:
        if letter.group and letter.event_id:
            again = await self._store.redeliver(self._stream, letter.group, [letter.event_id])
            if again:
                return True
        if letter.data is None:
            return False  # The event never was readable for a consumer.
        # Use a new key, because the event's own key may be remembered although the event is
        # deleted.
        key = f"dead:{letter.id}"
        event = NewEvent(self._stream, letter.data, letter.body, key, letter.version)
        await self._store.publish([event], durable=True)
        return True


def _checked(ids: Sequence[str] | None) -> list[str] | None:
    if isinstance(ids, str):
        raise InvalidEventError(
            f"invalid ids {ascii(ids)[:80]}: it must be a list of IDs, not a str"
        )
    return None if ids is None else [str(parse_id(id)) for id in ids]


def _failures(history: object) -> list[Failure]:
    found = []
    for entry in history if isinstance(history, list) else []:
        if isinstance(entry, dict):
            failure = Failure(
                _count(entry.get("attempt"), 0),
                _text(entry.get("consumer")),
                _time(entry.get("at")),
                _text(entry.get("error")),
            )
            found.append(failure)
    return found


def _id(value: object) -> str:
    try:
        return str(parse_id(value))
    except InvalidEventError:
        return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0


def _count(value: object, otherwise: int) -> int:
    return value if type(value) is int and value >= 0 else otherwise
