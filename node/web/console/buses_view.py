"""What the console shows of a node's buses: streams, groups with their lag, dead letters.

A store is asked now and then, and given some seconds to answer: what it says may be a little old.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Any, Final

import anyio

from parley._node.bus.bus import Bus
from parley._node.bus.bus_address import without_password
from parley._node.bus.dead_letters import DeadLetter
from parley._node.bus.errors import BusUnavailableError
from parley._node.bus.names import DEAD, dead_name
from parley._node.errors import ParleyError
from parley._node.web.console.text import shown

# Streams of a bus that are shown, and buses.
MOST_STREAMS: Final = 200
MOST_BUSES: Final = 16
# Seconds for a store to answer.
PATIENCE: Final = 3.0
# Letters of one page, and characters that are shown of what an event says.
LETTERS: Final = 50
LONGEST_BODY: Final = 4_000


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """What is asked of a bus in it; raises BusUnavailableError if that takes longer."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise BusUnavailableError(f"the bus did not answer within {seconds:g} s") from error


async def buses_view(buses: Mapping[str, Bus]) -> list[dict[str, Any]]:
    """All buses, side by side."""
    views: list[dict[str, Any]] = []

    async def view(number: int, url: str, bus: Bus) -> None:
        views[number] = await _bus(number, url, bus)

    async with anyio.create_task_group() as tasks:
        for number, (url, bus) in enumerate(islice(buses.items(), MOST_BUSES)):
            views.append({})
            tasks.start_soon(view, number, url, bus)
    return views


async def _bus(number: int, url: str, bus: Bus) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "key": number,
        "address": shown(without_password(url)),
        "counters": asdict(bus.counters),
        "streams": [],
        "total": 0,
        "dead": 0,
        "error": None,
    }
    try:
        with no_longer_than(PATIENCE):
            store = await bus.opened()
            infos = await store.streams()
            dead = {info.name: info.length for info in infos if info.name.endswith(f".{DEAD}")}
            names = [info for info in infos if info.name not in dead]
            seen["total"] = len(names)
            seen["dead"] = sum(dead.values())
            for info in names[:MOST_STREAMS]:
                groups = await store.groups(info.name)
                seen["streams"].append(
                    {
                        "name": info.name,
                        "length": info.length,
                        "size": info.size,
                        "dead": dead.get(dead_name(info.name), 0),
                        "groups": [group._asdict() for group in groups],
                    }
                )
    except ParleyError as error:
        seen["error"] = shown(error)
    return seen


async def letters_view(bus: Bus, stream: str, after: str) -> dict[str, Any]:
    """A page of the dead letters of a stream, after a letter's id.

    Raises:
        ParleyError: the bus cannot be opened, has no such stream, fails, or takes too long.
    """
    with no_longer_than(PATIENCE):
        letters = await bus.dead_letters(stream, count=LETTERS + 1, after=after)
    return {"letters": [_letter(one) for one in letters[:LETTERS]], "more": len(letters) > LETTERS}


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "event_id": shown(letter.event_id),
        "name": shown(letter.name),
        "group": shown(letter.group),
        "attempts": letter.attempts,
        "body": shown(letter.body, LONGEST_BODY),
        "history": [
            {
                **failure._asdict(),
                "consumer": shown(failure.consumer),
                "error": shown(failure.error),
            }
            for failure in letter.history
        ],
    }
