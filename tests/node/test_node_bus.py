"""A node's buses: created by URL, started and closed with the node."""

import os
from pathlib import Path

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError
from parley._node.bus.event import BusEvent
from parley._node.errors import AddressError, ConfigError, ParleyError
from tests.node.network import eventually, new_node, nothing_left

pytestmark = pytest.mark.anyio


async def test_one_bus_for_one_address(anyio_backend: str, tmp_path: Path) -> None:
    node = new_node()
    bus = node.bus(f"sqlite:///{tmp_path}/a.db", config=BusConfig(service="shop"))
    assert node.bus(f"sqlite:///{tmp_path}/a.db") is bus
    assert node.bus(f"sqlite:///{tmp_path}/a.db", config=BusConfig(service="shop")) is bus
    assert node.bus(f"sqlite:///{tmp_path}/b.db") is not bus
    with pytest.raises(ConfigError, match=r"a\.db': it is already open with other settings"):
        node.bus(f"sqlite:///{tmp_path}/a.db", config=BusConfig())
    with pytest.raises(AddressError):
        node.bus("nothing://x")
    with pytest.raises(ParleyError, match="not running"):
        await bus.publish("auth.user", {})
    async with node:
        assert os.listdir(tmp_path) == []  # opened on first use
        await bus.publish("auth.user", {})
        assert {name[0] for name in os.listdir(tmp_path)} == {"a"}
    with pytest.raises(BusClosedError):
        await bus.publish("auth.user", {})
    assert node.bus(f"sqlite:///{tmp_path}/a.db") is not bus


@pytest.mark.slow
async def test_handlers_live_as_long_as_the_node(anyio_backend: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    with nothing_left():
        node = new_node(drain_timeout=5.0)
        bus = node.bus(url)
        got: list[str] = []
        slow = anyio.Event()

        @bus.handler("auth.user", "early")
        async def early(event: BusEvent) -> None:
            got.append(f"early {event.data['n']}")

        async with node:
            await bus.publish("auth.user", {"n": 1})

            @bus.handler("auth.user", "late")
            async def late(event: BusEvent) -> None:
                slow.set()
                await anyio.sleep(0.02)  # the node waits for it
                got.append(f"late {event.data['n']}")

            await eventually(lambda: "early 1" in got)
            await slow.wait()
        assert sorted(got) == ["early 1", "late 1"]
    async with new_node() as node:
        assert [group.pending for group in await node.bus(url).groups("auth.user")] == [0, 0]


async def test_a_node_that_is_left_in_haste(anyio_backend: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"

    async def run() -> None:
        async with new_node(drain_timeout=5.0) as node:
            bus = node.bus(url)
            begun = anyio.Event()

            @bus.handler("auth.user", "mailer")
            async def handle(event: BusEvent) -> None:
                begun.set()
                await anyio.sleep_forever()

            await bus.publish_many("auth.user", [{"n": 1}, {"n": 2}])
            await begun.wait()
            raise ValueError("enough")

    with nothing_left(), pytest.raises(ValueError, match="enough"):
        await run()
    async with new_node() as node:
        bus = node.bus(url)
        async with bus.consume("auth.user", "mailer") as events:
            first, second = await anext(events), await anext(events)
        assert [(first.data["n"], first.attempt), (second.data["n"], second.attempt)] == [
            (1, 2),
            (2, 1),
        ]


async def test_one_bus_is_offered(anyio_backend: str, tmp_path: Path) -> None:
    node = new_node()
    bus = node.bus(f"sqlite:///{tmp_path}/a.db", allow=lambda request: True)
    with pytest.raises(ParleyError, match="one"):
        node.bus(f"sqlite:///{tmp_path}/b.db", allow=lambda request: True)
    async with node:
        await bus.publish("auth.user", {})
    async with node:
        node.bus(f"sqlite:///{tmp_path}/b.db", allow=lambda request: True)
    assert not node.handlers.reserved
