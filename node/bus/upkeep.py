"""What a bus tells of its streams and groups, and what is done to them by hand.

One rule: nothing here is needed to publish or to consume, and all of it may be asked at any time.
`Bus` is one.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from node.bus.dead_letters import DeadLetter, Replaying, read_letter
from node.bus.errors import BusError, InvalidEventError
from node.bus.history import History
from node.bus.ids import BEFORE_ALL, FIRST, Position, after, first_id_at, parse_id
from node.bus.model import ConsumerInfo, GroupInfo, PendingInfo, StreamInfo, Trim
from node.bus.names import api_of, dead_name, split_name
from node.bus.opened import Opened
from node.config import Range, require_in_range

# What a page of a listing has at most, unless more is asked for.
PAGE = 100
# Events fetched at once to show a stream's history.
HISTORY_PAGE = 100


class Upkeep(Opened):
    """Names of groups are as their consumers call them, without the service's. The stream of all
    events of an API, which Redis may have, is `API.*`."""

    # Looking.

    async def streams(self) -> list[StreamInfo]:
        """All streams, by name."""
        return await (await self.opened()).streams()

    async def groups(self, name: str | None = None) -> list[GroupInfo]:
        """The groups of a stream, or of all, under the names that the store has for them."""
        store = await self.opened()
        if name is not None:
            _check_stream(name)
            return await store.groups(name)
        found = [await store.groups(stream.name) for stream in await store.streams()]
        return [group for groups in found for group in groups]

    async def lag(self, name: str, group: str) -> int | None:
        """How many events the group was never handed; None if the store cannot say.

        Raises:
            BusError: there is no such group.
        """
        whole = self._group(name, group)
        for found in await self.groups(name):
            if found.name == whole:
                return found.lag
        raise BusError(f"{name} has no group {whole}")

    async def consumers(self, name: str, group: str) -> list[ConsumerInfo]:
        """The consumers of a group, by name."""
        return await (await self.opened()).consumers(name, self._group(name, group))

    async def pending(
        self, name: str, group: str, *, count: int = PAGE, after: str = BEFORE_ALL
    ) -> list[PendingInfo]:
        """Up to `count` events that were handed out and not acknowledged, after an id."""
        whole = self._group(name, group)
        return await (await self.opened()).pending(name, whole, count, str(parse_id(after)))

    def history(
        self,
        name: str,
        *,
        start: Position = FIRST,
        end: Position | None = None,
        follow: bool = False,
    ) -> History:
        """The events of a stream as they are stored, whatever groups do: `async for event in
        bus.history(...)`, from `start` (inclusive) to `end` (an id: inclusive; a time: what was
        published before it); with `follow` those that are yet to come, too.

        Raises:
            InvalidEventError: it is no such name, or position.
        """
        _check_stream(name)
        until = None if end is None else _last_id(end)
        return History(self.opened, name, after(start), until, HISTORY_PAGE, follow=follow)

    # Keeping order.

    async def replay(self, name: str, group: str, start: Position) -> None:
        """The group reads on from `start`, be that back or forth; a group that is not there is
        made. What is pending stays so.

        Raises:
            InvalidEventError: it is no such name, or position.
        """
        whole = self._group(name, group)
        await (await self.opened()).rewind(name, whole, after(start))

    async def trim(
        self,
        name: str,
        *,
        max_length: int | None = None,
        max_age: float | None = None,
        before: Position | None = None,
        max_bytes: int | None = None,
    ) -> int:
        """Take away the oldest events, read or not: all but `max_length`, those older than
        `max_age` seconds, those before an id or time, all but `max_bytes`. How many.

        Raises:
            InvalidEventError: it is no such name, or position. ConfigError: a number is wrong.
        """
        _check_stream(name)
        for kind, value in (("max_length", max_length), ("max_bytes", max_bytes)):
            if value is not None:
                require_in_range(kind, value, Range(0))
        first = [] if before is None else [parse_id(_first_id(before))]
        if max_age is not None:
            require_in_range("max_age", max_age, Range(0))
            now = datetime.fromtimestamp(self.config.clock(), UTC).timestamp()
            first.append(first_id_at(datetime.fromtimestamp(max(now - max_age, 0), UTC)))
        bounds = Trim(max_length, str(max(first)) if first else None, max_bytes)
        return await (await self.opened()).trim(name, bounds)

    async def remove_group(self, name: str, group: str) -> bool:
        """Forget a group with all that is pending in it; whether there was one."""
        return await (await self.opened()).remove_group(name, self._group(name, group))

    # Dead letters.

    async def dead_letters(
        self, name: str, *, count: int = PAGE, after: str = BEFORE_ALL
    ) -> list[DeadLetter]:
        """The first `count` events of a stream that were set aside, after the letter of an id;
        fewer if there are no more."""
        split_name(name)
        store = await self.opened()
        place = str(parse_id(after))
        letters: list[DeadLetter] = []
        while len(letters) < count:
            left = count - len(letters)
            found = await store.history(dead_name(name), place, None, left, 0.0)
            if not found:
                break
            letters += map(read_letter, found)  # a store shows fewer at once where they are large
            place = found[-1].id
        return letters

    async def replay_dead(
        self, name: str, ids: Sequence[str] | None = None, *, group: str | None = None
    ) -> list[str]:
        """Have events that were set aside processed again, attempts counted anew: all, or the
        letters of some ids, or those of a group. Each goes to the group it failed in; if the
        stream does not have it any more it is published again, for all groups. What was replayed
        is no dead letter any more; the ids of the letters are returned."""
        split_name(name)
        whole = None if group is None else self._group(name, group)
        return await Replaying(await self.opened(), name).replay(_letters(ids), whole)

    async def drop_dead(self, name: str, ids: Sequence[str] | None = None) -> int:
        """Forget events that were set aside: all, or the letters of some ids. How many."""
        split_name(name)
        store, wanted = await self.opened(), _letters(ids)
        if wanted is None:
            return await store.trim(dead_name(name), Trim(max_length=0))
        return await store.drop(dead_name(name), wanted)

    def _group(self, name: str, group: str) -> str:
        _check_stream(name)
        return self.config.group_name(group)


def _check_stream(name: str) -> None:
    api_of(name)


def _letters(ids: Sequence[str] | None) -> list[str] | None:
    if ids is None:
        return None
    if isinstance(ids, str):
        raise InvalidEventError("ids is a list of ids")
    return [str(parse_id(id)) for id in ids]


def _first_id(position: Position) -> str:
    return str(first_id_at(position)) if isinstance(position, datetime) else str(parse_id(position))


def _last_id(position: Position) -> str:
    if isinstance(position, datetime):
        return str(first_id_at(position).before)
    return str(parse_id(position))
