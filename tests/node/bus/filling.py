"""A process that publishes until there is no space, frees space, and continues.

Space is limited by the size of its files, or by a separate small disk. The process prints the
results as JSON. `python -m tests.node.bus.filling DIRECTORY limit|disk`.
"""

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.model import NewEvent
from parley._node.bus.sqlite.store import SqliteStore
from tests.node.bus.stores import opened

STREAM: Final = "shop.sold"
GROUP: Final = "ledger"
LIMIT: Final = 300_000  # The limit of a file, in bytes.
BALLAST: Final = 600_000  # A file on the small disk that is removed to free space.
BODY: Final = json.dumps({"text": "x" * 3_000})
BATCH: Final = 3
MOST: Final = 10_000


def make_full(directory: Path, how: str) -> Callable[[], None]:
    """Fill the disk or set the limit; return the function that frees space."""
    if how == "limit":
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    return ballast.unlink


async def fill(directory: Path, how: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    batch = [NewEvent(STREAM, {}, BODY) for _ in range(BATCH)]
    async with opened(SqliteStore(str(directory / "bus.db"), BusConfig())) as store:

        async def stored() -> list[str]:
            return [event.id for event in await store.history(STREAM, BEFORE_ALL, None, MOST, 0)]

        async def publish() -> None:
            ids.extend(one.id for one in await store.publish(batch, durable=True))

        async def outcome(step: Callable[[], Any]) -> str:
            try:
                await step()
            except BusError as error:
                return type(error).__name__
            return "done"

        async def consume() -> None:
            deliveries = await store.read(STREAM, GROUP, "c", MOST, 0)
            deliveries += await store.claim(STREAM, GROUP, "d", MOST, 0)
            assert await store.ack(STREAM, GROUP, [one.event.id for one in deliveries])

        ids: list[str] = []
        error = "done"
        await publish()
        free_space = make_full(directory, how)
        while len(ids) < MOST:
            if (error := await outcome(publish)) != "done":
                break
        said["full"] = [error, await outcome(publish)]
        said["kept"] = await stored() == ids
        said["published"] = len(ids)
        said["consuming when full"] = await outcome(consume)
        free_space()
        said["publishing later"] = await outcome(publish)
        said["consuming later"] = await outcome(consume)
        (group,) = await store.groups(STREAM)
        said["left"] = [group.lag, group.pending]
        said["kept later"] = await stored() == ids
    return said


if __name__ == "__main__":
    print(json.dumps(anyio.run(fill, Path(sys.argv[1]), sys.argv[2])))
