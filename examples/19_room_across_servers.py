"""Share a chat room between three federated servers.

One server hosts the room. People with accounts at any of the three servers write in it and read it
at their own server, all in the same order.

Run it with `uv run python examples/19_room_across_servers.py`.
"""

from contextlib import AsyncExitStack

import anyio

from parley import Home, Identity, Node
from parley.federation import Federation
from parley.settings import FederationSettings

SERVERS = {name: Identity.create() for name in ("north", "west", "east")}
PEOPLE = {name: Identity.create() for name in ("ann", "ben", "cas")}
LINES = 3  # per person


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
        # These node IDs may write in the room, whichever server they use. It keeps 100 notes, so
        # that late subscribers can read it from the beginning.
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
                follow=("room",),  # this server subscribes on behalf of its accounts
            )
            federations[name] = await stack.enter_async_context(Federation(node, settings))
        for name in ("west", "east"):
            await federations[name].ready(SERVERS["north"].node_id, timeout=10)

        topic = f"room@{ids['north']}"
        received: dict[str, list[str]] = {name: [] for name in PEOPLE}
        homes = {}
        for (name, identity), address in zip(PEOPLE.items(), addresses.values(), strict=True):
            person = await stack.enter_async_context(Node(identity))
            homes[name] = await stack.enter_async_context(person.home(address))
        async with anyio.create_task_group() as tasks:
            for name, home in homes.items():
                tasks.start_soon(read, home, topic, received[name])
                tasks.start_soon(write, home, topic, name)
        print("lines:", len(received["ann"]))
        print("same order for everyone:", received["ann"] == received["ben"] == received["cas"])
        for name in PEOPLE:
            own = [line for line in received["ann"] if line.startswith(name)]
            print(f"lines of {name}: {', '.join(own)}")


if __name__ == "__main__":
    anyio.run(main)
