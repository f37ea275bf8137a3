"""A process that fills its disk with small events, and then runs all that a full bus must allow.

It prints the results as JSON. With `greedy`, a consumer first receives as many events as it can.
`python -m tests.node.bus.trimming DIRECTORY [greedy]`.
"""

import json
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import anyio

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusError, BusFullError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.model import NewEvent, Trim
from parley._node.bus.sqlite.store import SqliteStore
from tests.node.bus.stores import opened

STREAM: Final = "shop.sold"
GROUP: Final = "ledger"
BODY: Final = json.dumps({"text": "x" * 300})
KEPT: Final = 10
BATCH: Final = 100
MOST: Final = 10_000


async def fill(store: SqliteStore) -> int:
    count = 0
    for batch in (200, 1):
        events = [NewEvent(STREAM, {}, BODY)] * batch
        try:
            while True:
                count += len(await store.publish(events, durable=True))
        except BusFullError:
            pass
    return count


async def use_all(directory: Path) -> dict[str, Any]:
    config = BusConfig(max_length=None)
    async with opened(SqliteStore(str(directory / "bus.db"), config)) as store:
        await store.join(STREAM, GROUP, "c", BEFORE_ALL)
        count = await fill(store)
        said: dict[str, Any] = {"published": count}

        async def note(name: str, step: Awaitable[Any]) -> Any:
            try:
                result = await step
            except BusError as error:
                said[name] = type(error).__name__
                return []
            said[name] = len(result) if isinstance(result, list) else result
            return result

        async def read(most: int) -> list[str]:
            found = await store.read(STREAM, GROUP, "c", most, 0)
            return [one.event.id for one in found]

        async def claim() -> list[str]:
            found = await store.claim(STREAM, GROUP, "c", BATCH, 60)
            return [one.event.id for one in found]

        async def consume() -> list[str]:
            ids: list[str] = []
            while found := await read(BATCH):
                assert await store.ack(STREAM, GROUP, found) == len(found)
                ids += found
            return ids

        held = await read(BATCH)
        await note("touch", store.touch(STREAM, GROUP, "c", held))
        await note("release", store.release(STREAM, GROUP, "c", held))
        said["claim"] = await claim() == held
        said["ack"] = await store.ack(STREAM, GROUP, held) == len(held)
        ids = held + await consume()
        said["consumed"] = len(ids)
        said["redeliver"] = await store.redeliver(STREAM, GROUP, held) == held
        await note("remove_group", store.remove_group(STREAM, GROUP))
        await note("drop", store.drop(STREAM, ids[: count // 2]))
        await note("trim", store.trim(STREAM, Trim(max_length=KEPT)))
        await note("publish", store.publish([NewEvent(STREAM, {}, BODY)], durable=True))
        said["left"] = len(await store.history(STREAM, BEFORE_ALL, None, count, 0))
    return said


async def take_all(directory: Path) -> dict[str, Any]:
    config = BusConfig(max_length=None)
    async with opened(SqliteStore(str(directory / "bus.db"), config)) as store:
        await store.join(STREAM, GROUP, "c", BEFORE_ALL)
        said: dict[str, Any] = {"published": await fill(store), "reads": [], "consumed": 0}
        while said["consumed"] < said["published"]:
            held: list[str] = []
            try:
                while found := await store.read(STREAM, GROUP, "c", MOST, 0):
                    held += [one.event.id for one in found]
            except BusFullError:
                pass
            if not held:
                break
            said["reads"].append(len(held))
            said["consumed"] += await store.ack(STREAM, GROUP, held)
        said["trim"] = await store.trim(STREAM, Trim(max_length=KEPT))
        said["publish"] = len(await store.publish([NewEvent(STREAM, {}, BODY)], durable=True))
    return said


if __name__ == "__main__":
    run = take_all if sys.argv[2:] == ["greedy"] else use_all
    print(json.dumps(anyio.run(run, Path(sys.argv[1]))))
