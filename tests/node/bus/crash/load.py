"""Processes that load a bus with large events until they are killed, that open it meanwhile, and
that check afterwards that everything is there.

A batch is noted once `publish_many` has returned; its number is never used again, so that it
differs from one that was stored and not noted.
"""

import json
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio

from parley._node.bus.address import open_bus
from parley._node.bus.errors import BusFullError
from parley._node.bus.sqlite import database as bus_file
from tests.node.bus.crash.actors import AGAIN, GROUP, STREAM, Line, Notes
from tests.node.bus.crash.writes import kill_in_write

BATCH: Final = 40
TEXT: Final = "x" * 1_500
# Few, so that every second batch comes with a checkpoint.
CHECKPOINT_PAGES: Final = 50


async def load(role: dict[str, Any]) -> None:
    """Publish batches, and once there is no room try again and again."""
    directory = Path(role["directory"])
    published, refused = Notes(directory / "published"), Notes(directory / "refused")
    bus_file.CHECKPOINT_PAGES = CHECKPOINT_PAGES  # type: ignore[misc]  # a process of its own
    if role["write"]:
        kill_in_write(role["write"], torn=role["torn"])
    async with open_bus(role["bus"]) as bus:
        for batch in count(role["first"]):
            events = [{"batch": batch, "text": TEXT} for _ in range(BATCH)]
            try:
                ids = await bus.publish_many(STREAM, events)
            except BusFullError:
                refused.write(Line(batch, 0, "-", 0))
                await anyio.sleep(AGAIN)
            else:
                published.write(Line(batch, BATCH, ids[-1], 0))


async def look(role: dict[str, Any]) -> None:
    """Open the bus, look, and close it, over and over."""
    notes = Notes(Path(role["directory"], "looked"))
    for number in count():
        async with open_bus(role["bus"]) as bus:
            for stream in await bus.streams():
                notes.write(Line(number, stream.length, "-", 0))


async def settle(role: dict[str, Any]) -> None:
    """See what is there, process all that is new, and take it away if that is asked for."""
    async with open_bus(role["bus"]) as bus:
        stored = [(event.data["batch"], event.id) async for event in bus.history(STREAM)]
        lag = await bus.lag(STREAM, GROUP) if await bus.groups(STREAM) else len(stored)
        async with bus.consume(STREAM, group=GROUP) as events:
            for _ in range(lag or 0):
                await anext(events)
        (group,) = await bus.groups(STREAM)
        if role["trim"]:
            await bus.trim(STREAM, max_length=0)
    said = {"stored": stored, "left": [group.lag, group.pending]}
    await anyio.Path(role["directory"], "settled").write_text(json.dumps(said))


async def ballast(role: dict[str, Any]) -> None:
    """Take so many bytes of the disk; with none, what was taken is free again."""
    path = anyio.Path(role["disk"], "ballast")
    await path.write_bytes(bytes(role["size"]))


async def clear(role: dict[str, Any]) -> None:
    """Take everything away."""
    async for path in anyio.Path(role["disk"]).iterdir():
        await path.unlink()


ROLES: Final = {"load": load, "look": look, "settle": settle, "ballast": ballast, "clear": clear}
