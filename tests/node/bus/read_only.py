"""A process that reads buses on a disk that becomes read-only, and then writable again.

Each bus was closed properly, killed, or copied without the index of its log. The process prints the
results as JSON. `python -m tests.node.bus.read_only DIRECTORY`.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
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
EVENT: Final = NewEvent(STREAM, {}, "{}")
LEFT: Final = {
    "closed": ("",),
    "killed": ("", "-wal", "-shm"),
    "copied": ("", "-wal"),
}
# Another process has published five more events that the group has not read.
OTHERS: Final = """import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("UPDATE streams SET published = published + 5")
connection.close()
"""


async def leave(directory: Path) -> None:
    """Create the buses. The second event of each was only in the log before closing."""
    path = directory / "live.db"
    async with opened(SqliteStore(str(path), BusConfig())) as store:
        await store.publish([EVENT], durable=True)
        await store.join(STREAM, GROUP, "c", BEFORE_ALL)
    async with opened(SqliteStore(str(path), BusConfig())) as store:
        await store.publish([EVENT], durable=True)
        for name in ("killed", "copied"):
            for end in LEFT[name]:
                shutil.copy(f"{path}{end}", directory / f"{name}.db{end}")
    path.rename(directory / "closed.db")
    (directory / "empty.db").touch()


async def outcome(step: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await step()
    except BusError as error:
        return f"{type(error).__name__}: {error}"


async def use(path: Path, remount: Callable[[], None]) -> list[Any]:
    """Return the results of reading and writing while the disk is read-only, and afterwards."""
    async with opened(SqliteStore(str(path), BusConfig(busy_timeout=0.1))) as store:

        async def read() -> list[int | None]:
            events = await store.history(STREAM, BEFORE_ALL, None, 9, 0)
            return [len(events), *(group.lag for group in await store.groups(STREAM))]

        async def consume() -> int:
            got = await store.read(STREAM, GROUP, "c", 9, 0)
            return await store.ack(STREAM, GROUP, [one.event.id for one in got])

        async def publish() -> int:
            return len(await store.publish([EVENT], durable=True))

        async def others_write() -> None:
            await anyio.run_process([sys.executable, "-c", OTHERS, str(path)])

        said = [await outcome(step) for step in (read, publish, consume, read)]
        remount()
        return said + [await outcome(step) for step in (others_write, read, publish, consume, read)]


async def main(directory: Path) -> dict[str, Any]:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(directory)], check=True)

    await leave(directory)
    said: dict[str, Any] = {}
    for name in (*LEFT, "empty", "none"):
        remount("ro")
        path = directory / f"{name}.db"
        said[name] = await outcome(partial(use, path, partial(remount, "rw")))
    return said


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]))))
