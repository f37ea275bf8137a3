"""Processes that load a bus with large events, open it during the load, and check it afterwards.

A batch is recorded when `publish_many` has returned. Its number is never reused, so that it differs
from a batch that was stored but not recorded.
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
# Few events, so that every second batch causes a checkpoint.
CHECKPOINT_PAGES: Final = 50


async def load(role: dict[str, Any]) -> None:
    """Publish batches; when there is no space, retry until there is."""
    directory = Path(role["directory"])
    published, refused = Notes(directory / "published"), Notes(directory / "refused")
    bus_file.CHECKPOINT_PAGES = CHECKPOINT_PAGES  # type: ignore[misc] # runs in a separate process
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
    """Repeatedly open, inspect and close the bus."""
    notes = Notes(Path(role["directory"], "looked"))
    for number in count():
        async with open_bus(role["bus"]) as bus:
            for stream in await bus.streams():
                notes.write(Line(number, stream.length, "-", 0))


async def settle(role: dict[str, Any]) -> None:
    """Read the contents, process all new events, and optionally delete them."""
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
    """Occupy so many bytes of the disk; 0 frees them."""
    path = anyio.Path(role["disk"], "ballast")
    await path.write_bytes(bytes(role["size"]))


async def clear(role: dict[str, Any]) -> None:
    """Delete all events."""
    async for path in anyio.Path(role["disk"]).iterdir():
        await path.unlink()


ROLES: Final = {"load": load, "look": look, "settle": settle, "ballast": ballast, "clear": clear}
