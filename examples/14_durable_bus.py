"""A durable bus: events survive restarts, failed handlers are retried, and failures can be
replayed.

The bus is one SQLite file.

Run it with `uv run python examples/14_durable_bus.py`.
"""

import logging
import tempfile
from pathlib import Path

import anyio

from parley import Identity, Node
from parley.bus import Bus, BusEvent

NAME = "auth.user_registered"
# Failures of a handler are logged as errors; this example causes them on purpose.
logging.getLogger("parley.bus").setLevel(logging.CRITICAL)


async def read_in_a_loop(bus: Bus) -> None:
    """Read events in a loop. Each group receives all events; reading on acknowledges the last
    one.
    """
    async with bus.consume(NAME, group="audit") as events:
        async for event in events:
            print("audit:", event.data["username"])
            if event.data["username"] == "carol":
                break
    print("audit: unread events:", await bus.lag(NAME, "audit"))


class Mailer:
    """A handler with two problems: its mail server starts late, and carol has no mailbox."""

    def __init__(self) -> None:
        self.knows = {"alice", "bob"}
        self.sent: dict[str, int] = {}
        self.all_sent = anyio.Event()

    async def mail(self, event: BusEvent) -> None:
        """Send one mail."""
        username = event.data["username"]
        if username == "alice" and event.attempt == 1:
            raise ConnectionError("the mail server is not up yet")
        if username not in self.knows:
            raise LookupError(f"no mailbox for {username}")
        self.sent[username] = event.attempt
        if len(self.sent) == 3:
            self.all_sent.set()


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Node(Identity.create()) as node:
            bus = node.bus(f"sqlite:///{Path(directory) / 'bus.db'}")

            # `publish` returns once the event is on disk. With the same key, the event is stored
            # once.
            await bus.publish(NAME, {"username": "alice"})
            first = await bus.publish(NAME, {"username": "bob"}, idempotency_key="order-7")
            again = await bus.publish(NAME, {"username": "bob"}, idempotency_key="order-7")
            print("published twice, stored once:", first == again)
            await bus.publish(NAME, {"username": "carol"})
            await read_in_a_loop(bus)

            mailer = Mailer()
            bus.handler(NAME, group="mailer", max_attempts=2, retry_delay=0.01)(mailer.mail)
            # Dead letters, events whose attempts all failed, are a stream too. Wait for the first
            # one.
            async with bus.consume(f"{NAME}.dead", group="operator") as dead:
                await anext(dead)
            for letter in await bus.dead_letters(NAME):
                print("dead letter:", letter.data, "after", letter.attempts, "attempts")
                print("  error:", letter.history[-1].error)

            mailer.knows.add("carol")
            print("replayed:", len(await bus.replay_dead(NAME)))
            with anyio.fail_after(10):
                await mailer.all_sent.wait()
            for username, attempt in sorted(mailer.sent.items()):
                print(f"mailed to {username} in attempt {attempt}")


if __name__ == "__main__":
    anyio.run(main)
