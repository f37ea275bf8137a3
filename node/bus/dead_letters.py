"""Dead letters as applications see them, and how they are replayed.

One rule: a letter is forgotten after its event is pending or published again, never before; who
is cut short in between replays one event twice and loses none. Writes no letters: stores do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from node.bus.body import decode_body, encode_value
from node.bus.errors import InvalidEventError
from node.bus.ids import BEFORE_ALL, parse_id
from node.bus.model import Failure, NewEvent, StoredEvent
from node.bus.names import dead_name
from node.bus.store import Store

# Letters that are fetched at once.
PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that was set aside. What a letter of another hand does not say is empty.

    Attributes:
        id: the letter's own.
        event_id, name, idempotency_key, version: the event's.
        data: the event's; None if it cannot be read, and `body` is what stands there.
        group: the group that gave it up, as the store calls it.
        attempts: how often it was tried.
        history: what became of each attempt, at most 32 of them.
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
    """The letter that an event of a dead-letter stream is."""
    try:
        letter: Mapping[str, Any] = decode_body(stored.body)
    except InvalidEventError:
        letter = {}
    data = letter.get("data")
    body = _text(letter.get("body", stored.body))
    try:
        body = encode_value(data) if isinstance(data, dict) else body
        body.encode()
    except (InvalidEventError, UnicodeEncodeError):  # NaN, say, which Lightbus writes
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


class Replaying:
    """The dead letters of one stream, being processed again."""

    def __init__(self, store: Store, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._dead = dead_name(stream)

    async def replay(self, ids: list[str] | None, group: str | None) -> list[str]:
        """Those of `ids`, and of a group; None is all. The ids of the letters that were."""
        replayed: list[str] = []
        place = BEFORE_ALL
        if ids is not None:
            for id in sorted(set(ids), key=parse_id):
                before = str(parse_id(id).before)
                found = await self._store.history(self._dead, before, id, 1, 0.0)
                replayed += await self._replay_all(found, group)
            return replayed
        # What is set aside again meanwhile is not replayed for ever.
        last = await self._last()
        while last is not None:
            found = await self._store.history(self._dead, place, last, PAGE, 0.0)
            if not found:
                break
            place = found[-1].id
            replayed += await self._replay_all(found, group)
        return replayed

    async def _last(self) -> str | None:
        for stream in await self._store.streams():
            if stream.name == self._dead:
                return stream.last_id
        return None

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
            return False  # nobody could read it then either
        # Under a key of its own: the event's may be remembered, though the event is gone.
        key = f"dead:{letter.id}"
        event = NewEvent(self._stream, letter.data, letter.body, key, letter.version)
        await self._store.publish([event], durable=True)
        return True


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
