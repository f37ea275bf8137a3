"""Exchange events with Lightbus services on the same Redis server.

The node handles events of Lightbus, publishes events for it, and finishes the work of a Lightbus
worker that died.

Run it with `uv run --extra bus python examples/15_lightbus_interop.py`. It starts a redis-server
and sends the same commands as Lightbus 1.1.2. To use a running server, append its address, such as
`redis://127.0.0.1:6379/0`. docs/guides/lightbus.md has a Lightbus service that you can run
alongside; it handles the same events.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import anyio
import coredis

from parley import Identity, Node
from parley.bus import LIGHTBUS, BusConfig, BusEvent

# These names follow from `service_name` and `stream_use: per_api` in Lightbus's configuration.
CONFIG = BusConfig(service="shop", formats={"*": LIGHTBUS})
STREAM, GROUP, NAME = "auth.*:stream", "shop-audit", "auth.user_registered"


async def fire(redis: "coredis.Redis[str]", username: str) -> None:
    """Publish as Lightbus does in `bus.auth.user_registered.fire(username=...)`."""
    metadata = {"api_name": "auth", "event_name": "user_registered", "version": "1"}
    fields = {"id": str(uuid4()), **metadata, ":username": json.dumps(username)}
    await redis.xadd(STREAM, field_values=fields)


async def die_while_handling(redis: "coredis.Redis[str]") -> None:
    """Leave an event unacknowledged, like a Lightbus worker that is killed while it handles it."""
    await redis.xgroup_create(STREAM, GROUP, identifier="$")
    await fire(redis, "grace")
    await redis.xreadgroup(GROUP, "lightbus-1", count=1, streams={STREAM: ">"})


async def run(url: str) -> None:
    handled = anyio.Event()
    async with (
        coredis.Redis.from_url(url.removeprefix("redis+"), decode_responses=True) as redis,
        Node(Identity.create()) as node,
    ):
        bus = node.bus(url, config=CONFIG)

        @bus.handler(NAME, group="mailer")
        async def mail(event: BusEvent) -> None:
            if not handled.is_set():
                print(f"fired by Lightbus, handled by the node: {event.data}")
            handled.set()

        await fire(redis, "ada")
        await handled.wait()

        id = await bus.publish(NAME, {"username": "admin"})
        (entry,) = await redis.xrange(STREAM, start=id, end=id)
        print(f"published by the node: {dict(list(entry.field_values.items())[1:])}")

        await die_while_handling(redis)
        async with bus.consume(NAME, group="audit", reclaim_after=0.2) as events:
            async for event in events:
                print(f"taken over from Lightbus: {event.data}, attempt {event.attempt}")
                break
        await redis.xgroup_destroy(
            STREAM, GROUP
        )  # so that the example can run again on the same server


@contextmanager
def private_redis() -> Iterator[str]:
    """Run a redis-server and return its address."""
    with tempfile.TemporaryDirectory() as directory:
        socket = Path(directory) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--appendonly", "yes"]
        with subprocess.Popen(
            ["redis-server", *options, "--dir", directory],  # noqa: S607 - wherever it is
            stdout=subprocess.DEVNULL,
        ) as server:
            try:
                while not socket.exists() and server.poll() is None:
                    time.sleep(0.01)
                yield f"redis+unix://{socket}"
            finally:
                server.terminate()


def main() -> None:
    if sys.argv[1:]:
        anyio.run(run, sys.argv[1])
        return
    with private_redis() as url:
        anyio.run(run, url)


if __name__ == "__main__":
    main()
