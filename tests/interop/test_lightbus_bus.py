"""A bus and Lightbus 1.1.2 on one Redis: events in both directions, a shared group, and each
claiming the other's pending events.

Both are real, and run in separate processes if one is killed. Each test has separate users, because
all tests of a layout share a service of Lightbus.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import anyio.to_thread
import coredis
import pytest

from parley._node.bus.address import open_bus
from parley._node.bus.bus import Bus
from parley._node.bus.errors import SchemaViolationError
from parley._node.bus.redis.format import Layout
from tests.interop.lightbus_peer import (
    PATIENCE,
    SERVICE,
    LightbusBeside,
    LightbusService,
    config_beside,
    key_of,
)
from tests.redis_server import RedisServer

# One process for all of them: a service is started once for each layout.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.lightbus,
    pytest.mark.redis,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("lightbus"),
]

PROFILE: Final[dict[str, Any]] = {
    "username": 'Zoë \U0001f600 "quoted"\n',
    "age": 2**70,
    "score": -0.1,
    "active": True,
    "nickname": None,
    "tags": ["a", "", "日本"],
    "address": {"lines": [{"street": "é", "number": [1, [2.5, None]]}], "": False},
}
# A consumer of the bus that receives one event and never finishes it.
HOLDER: Final = """
import sys
import anyio
from parley._node.bus.address import open_bus

async def main() -> None:
    async with open_bus(sys.argv[1]) as bus:
        async with bus.consume("auth.user_registered", group="mailer") as events:
            async for event in events:
                print(event.data["username"], flush=True)
                await anyio.sleep_forever()

anyio.run(main)
"""


@contextmanager
def holder(server: RedisServer, layout: Layout) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the next event of the group."""
    url = f"{server.url}?service={SERVICE}&format={layout.replace('_', '-')}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until it holds; TimeoutError if it never does."""
    with anyio.fail_after(PATIENCE):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await anyio.sleep(0.005)


async def pending(bus: Bus, name: str, group: str) -> int:
    """How many events the group has not acknowledged."""
    return next(found.pending for found in await bus.groups(name) if found.name == group)


async def nothing_pending(bus: Bus, name: str, group: str) -> bool:
    """Whether the group has acknowledged all it was handed."""
    return await pending(bus, name, group) == 0


async def test_what_we_publish_is_handled_there_once(
    anyio_backend: str, beside: LightbusBeside
) -> None:
    key = f"of-{anyio_backend}"
    async with open_bus(beside.server.url, beside.config("ours")) as bus:
        ids = [
            await bus.publish("auth.profile_changed", PROFILE, idempotency_key=key, version=7)
            for _ in range(2)
        ]
        after = await bus.publish("auth.profile_changed", PROFILE)
    assert ids == [ids[0]] * 2
    assert await beside.service.began(ids[0]) == {
        "name": "auth.profile_changed",
        "id": key,
        "native_id": ids[0],
        "version": 7,
        "data": PROFILE,
    }
    await beside.service.acknowledged(after)
    assert key not in [event["id"] for event in beside.service.untaken("began")]


async def test_what_lightbus_fires_is_consumed_here(
    anyio_backend: str, beside: LightbusBeside
) -> None:
    await beside.service.fire("user_registered", {"username": "somebody else's concern"})
    (fired,) = await beside.service.fire("profile_changed", PROFILE)
    seen = []
    async with (
        open_bus(beside.server.url, beside.config("ours")) as bus,
        bus.consume("auth.profile_changed", group=f"of-{anyio_backend}") as events,
    ):
        async for event in events:
            seen.append(event.name)
            assert event.attempt == 1
            if event.id == fired["native_id"]:
                assert (event.data, event.version) == (PROFILE, 2)
                break
    # The entry that begins Lightbus's streams is skipped, as are other events of its API, and
    # skipped entries are not pending.
    assert set(seen) == {"auth.profile_changed"}
    async with open_bus(beside.server.url, beside.config("ours")) as bus:
        assert await pending(bus, "auth.profile_changed", f"ours-of-{anyio_backend}") == 0


async def test_a_group_shared_with_lightbus_is_handed_each_event_once(
    anyio_backend: str, beside: LightbusBeside
) -> None:
    name, group = "auth.user_registered", f"{SERVICE}-mailer"
    users = [f"{anyio_backend} {number}" for number in range(60)]
    ours: list[str] = []

    def theirs() -> list[str]:
        handled = [event["data"]["username"] for event in beside.service.untaken("began")]
        return [user for user in handled if user in users]

    async def consume(bus: Bus) -> None:
        async with bus.consume(name, group="mailer", batch=5) as events:
            async for event in events:
                assert event.attempt == 1
                ours.append(event.data["username"])
                await anyio.sleep(0.002)

    async with (
        open_bus(beside.server.url, beside.config()) as bus,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(consume, bus)
        for user in users[:30]:
            await bus.publish(name, {"username": user})
        await beside.service.fire("user_registered", *({"username": user} for user in users[30:]))
        await until(lambda: len(ours) + len(theirs()) >= len(users))
        await until(lambda: nothing_pending(bus, name, group))
        tasks.cancel_scope.cancel()
    assert Counter(ours) + Counter(theirs()) == Counter(users)
    assert ours
    assert theirs()


async def test_the_schema_that_lightbus_has_in_redis_holds_here(
    anyio_backend: str, beside: LightbusBeside
) -> None:
    name = "auth.user_registered"
    async with coredis.Redis.from_url(beside.server.url, decode_responses=True) as redis:
        schema = json.loads(str(await redis.get("schema:auth")))
    async with open_bus(beside.server.url, beside.config("ours")) as bus:
        bus.schema(name, schema["events"]["user_registered"]["parameters"], validate="publish")
        with pytest.raises(SchemaViolationError, match="username"):
            await bus.publish(name, {"username": 3})
        id = await bus.publish(name, {"username": "valid"})
    await beside.service.acknowledged(id)


async def test_each_takes_over_what_the_other_left(
    anyio_backend: str, lightbus_is_there: None, layout: Layout
) -> None:
    name = "auth.user_registered"
    with RedisServer() as server:
        async with open_bus(server.url, config_beside(layout)) as bus:
            with holder(server, layout) as ours:
                killed = await bus.publish(name, {"username": "killed"})
                assert ours.stdout is not None
                assert await anyio.to_thread.run_sync(ours.stdout.readline) == "killed\n"
            refused = await bus.publish(name, {"username": "refused"})
            async with bus.consume(name, group="mailer") as events:
                async for event in events:
                    assert event.id == refused
                    await event.nack(delay=3600)  # Lightbus doesn't have these events.
                    break
            with LightbusService(
                server, layout, acknowledgement_timeout=0.5, reclaim_interval=0.1
            ) as theirs:
                for id in (killed, refused):
                    await theirs.acknowledged(id)
                await theirs.hold(True)
                (fired,) = await theirs.fire("user_registered", {"username": "theirs"})
                await theirs.began(fired["native_id"])
                theirs.kill()
            async with bus.consume(name, group="mailer", reclaim_after=0.2) as events:
                async for event in events:
                    assert (event.id, event.attempt) == (fired["native_id"], 2)
                    assert event.data == {"username": "theirs"}
                    break
            assert await pending(bus, name, f"{SERVICE}-mailer") == 0


@pytest.mark.parametrize("layout", ["per_event"], scope="function")
async def test_a_consumer_by_the_name_of_a_worker_that_is_gone_has_what_that_left_at_once(
    anyio_backend: str, lightbus_is_there: None, layout: Layout
) -> None:
    with RedisServer() as server:
        with LightbusService(server, layout, process="worker-1") as theirs:
            await theirs.hold(True)
            (fired,) = await theirs.fire("user_registered", {"username": "left"})
            await theirs.began(fired["native_id"])
            theirs.kill()
        async with (
            open_bus(server.url, config_beside(layout, consumer="worker-1")) as bus,
            bus.consume("auth.user_registered", group="mailer", reclaim_after=600) as events,
        ):
            async for event in events:
                assert (event.id, event.attempt) == (fired["native_id"], 2)
                break


async def test_a_group_that_lightbus_cleaned_up_is_there_again_and_goes_on(
    anyio_backend: str,
    lightbus_is_there: None,
    layout: Layout,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = "auth.user_registered"
    with RedisServer() as server:
        seen: list[tuple[str, int]] = []

        async def consume(bus: Bus) -> None:
            async with bus.consume(name, group="audit") as events:
                async for event in events:
                    entry = event.id, event.attempt
                    seen.append(entry)

        async with (
            open_bus(server.url, config_beside(layout, "ours")) as bus,
            anyio.create_task_group() as tasks,
        ):
            first = await bus.publish(name, {"username": "before"})
            tasks.start_soon(consume, bus)
            await until(lambda: seen == [(first, 1)])
            # A starting worker removes consumers that were idle for this long, each listener
            # separately: -1 means all of them, so that no test waits for a second. The group ends
            # with its last consumer.
            mailer = {"user_registered": "mailer"}
            with LightbusService(server, layout, listeners=mailer, consumer_ttl=-1) as service:
                second = await bus.publish(name, {"username": "after"})
                await service.acknowledged(second)
            await until(lambda: seen == [(first, 1), (second, 1)])
            assert f"vanished group ours-audit of {key_of(name, layout)}" in caplog.text
            tasks.cancel_scope.cancel()
