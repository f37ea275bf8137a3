"""A bus handler that runs longer than `reclaim_after`, on each event loop as programs start it:
`asyncio.run`, `uvloop.run`, `anyio.run` and `trio.run`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
import uvloop

from parley._crypto.identity import Identity
from parley._node.bus.config import BusConfig
from parley._node.bus.event import BusEvent
from parley._node.node import Node
from tests.node.network import eventually

RECLAIM_AFTER = 0.3

Main = Callable[[], Coroutine[Any, Any, None]]


def run_asyncio(main: Main) -> None:
    asyncio.run(main())


def run_uvloop(main: Main) -> None:
    uvloop.run(main())


def run_anyio(main: Main) -> None:
    anyio.run(main)


def run_trio(main: Main) -> None:
    trio.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("run", [run_asyncio, run_uvloop, run_anyio, run_trio])
def test_a_long_handler_runs_once(
    run: Callable[[Main], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[tuple[str, int]] = []
    ended: list[str] = []

    async def main() -> None:
        url = f"sqlite:///{tmp_path}/bus.db"
        async with Node(Identity.create()) as one, Node(Identity.create()) as two:
            buses = {
                name: node.bus(url, config=BusConfig(consumer=name))
                for name, node in (("one", one), ("two", two))
            }
            for name, bus in buses.items():

                async def work(event: BusEvent, name: str = name) -> None:
                    begun.append((name, event.attempt))
                    await anyio.sleep(5 * RECLAIM_AFTER)
                    ended.append(name)

                bus.handler("shop.ordered", group="mailer", reclaim_after=RECLAIM_AFTER)(work)
                await bus.opened()
            await buses["one"].publish("shop.ordered", {"n": 1})
            await eventually(lambda: bool(ended))

    run(main)
    assert len(begun) == len(ended) == 1
    assert begun[0][1] == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
