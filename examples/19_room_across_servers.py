"""A room across servers: it lives at one of them, people with homes at three write in it, and all
of them read it at home, in one order.

Run it with `uv run python examples/19_room_across_servers.py`.
"""

from contextlib import AsyncExitStack

import anyio

from parley import Home, Identity, Node
from parley.federation import Federation
from parley.settings import FederationSettings

SERVERS = {name: Identity.create() for name in ("north", "west", "east")}
PEOPLE = {name: Identity.create() for name in ("ann", "ben", "cas")}
LINES = 3  # of each


async def read(home: Home, topic: str, lines: list[str]) -> None:
    async with home.subscribe(topic) as notes:
        async for line in notes:
            lines.append(str(line))
            if len(lines) == LINES * len(PEOPLE):
                return


async def write(home: Home, topic: str, name: str) -> None:
    for number in range(LINES):
        await home.publish(topic, f"{name} {number}")


async def main() -> None:
    async with AsyncExitStack() as stack:
        nodes = {
            name: await stack.enter_async_context(Node(identity))
            for name, identity in SERVERS.items()
        }
        # The room is open to whoever has these ids, wherever they come from. It remembers, so that
        # those who come late read it from its beginning.
        writers = [identity.node_id for identity in PEOPLE.values()]
        nodes["north"].topic("room", writers=writers, keep=100)
        addresses = {name: await node.listen("tcp://127.0.0.1:0") for name, node in nodes.items()}
        ids = {name: str(identity.node_id) for name, identity in SERVERS.items()}
        federations = {}
        for (name, node), account in zip(nodes.items(), PEOPLE.values(), strict=True):
            hosts = name == "north"
            settings = FederationSettings(
                links=() if hosts else (addresses["north"],),
                members=tuple(ids[other] for other in SERVERS if other != name),
                accounts=(str(account.node_id),),
                exports=("room", "publish:room") if hosts else (),
                follow=("room",),  # read for its accounts, with its own right
            )
            federations[name] = await stack.enter_async_context(Federation(node, settings))
        for name in ("west", "east"):
            await federations[name].ready(SERVERS["north"].node_id, timeout=10)

        topic = f"room@{ids['north']}"
        heard: dict[str, list[str]] = {name: [] for name in PEOPLE}
        homes = {}
        for (name, identity), address in zip(PEOPLE.items(), addresses.values(), strict=True):
            person = await stack.enter_async_context(Node(identity))
            homes[name] = await stack.enter_async_context(person.home(address))
        async with anyio.create_task_group() as tasks:
            for name, home in homes.items():
                tasks.start_soon(read, home, topic, heard[name])
                tasks.start_soon(write, home, topic, name)
        print("lines:", len(heard["ann"]))
        print("one order for all:", heard["ann"] == heard["ben"] == heard["cas"])
        for name in PEOPLE:
            own = [line for line in heard["ann"] if line.startswith(name)]
            print(f"what {name} wrote, in order: {', '.join(own)}")


if __name__ == "__main__":
    anyio.run(main)
