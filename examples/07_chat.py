"""A small chat room: one node is the room, the others talk in it. Names are claimed, ids are
proved, and a reader is shown which names are true.

Run it with `uv run python examples/07_chat.py`.
"""

import anyio

from parley import (
    Call,
    CallRefused,
    Identity,
    Node,
    NodeId,
    Peer,
    SubscribeRefused,
    SubscribeRequest,
)

NOT_HERE = 64  # codes from 64 on are the application's
LONGEST = 200  # characters: what comes from outside has a bound


class Room:
    """Who is here and what is said: a topic for the lines, a call to say one."""

    def __init__(self, node: Node) -> None:
        self.names: dict[NodeId, str] = {}
        self.told: dict[NodeId, str] = {}
        self.lines = node.topic("room")
        self.lines.on_subscribe(self.enter)
        node.on_call("say")(self.say)

    def here(self) -> dict[NodeId, str]:
        """Whoever is subscribed is here, so there is nothing to be kept up to date."""
        ids = [subscriber.peer.node_id for subscriber in self.lines.subscribers]
        return {node_id: self.names[node_id] for node_id in ids if node_id in self.names}

    async def enter(self, request: SubscribeRequest) -> object:
        """Come in under a name; returns who is here already."""
        name, node_id, here = str(request.data)[:LONGEST], request.peer.node_id, self.here()
        if node_id is None or name in here.values():
            raise SubscribeRefused(f"there is a {name} here")
        self.names[node_id] = name
        return list(here.values())

    async def say(self, call: Call) -> None:
        """A line for all. Who said it is not taken from the line: the handshake proved it."""
        node_id, here = call.peer.node_id, self.here()
        if node_id is None or node_id not in here:
            raise CallRefused(NOT_HERE, "come in first")
        await self.publish(node_id, here[node_id], f": {str(call.data)[:LONGEST]}")

    async def watch(self) -> None:
        """Tell who comes and who goes, be it that their connection breaks."""
        while True:
            await self.lines.until(lambda: self.here() != self.told)
            before, self.told = self.told, self.here()
            for node_id in self.told.keys() - before.keys():
                await self.publish(node_id, self.told[node_id], " comes in")
            for node_id in before.keys() - self.told.keys():
                await self.publish(node_id, before[node_id], " has left")

    async def publish(self, who: NodeId, name: str, what: str) -> None:
        await self.lines.publish({"id": str(who), "name": name, "what": what})


async def show(room: Peer, name: str, friends: dict[str, str], ready: anyio.Event) -> None:
    """One guest's screen. `friends` are names of ids, learnt in another way than here."""
    async with room.subscribe("room", name) as lines:
        print("already here:", lines.data)
        ready.set()
        async for line in lines:  # until the room is closed
            if isinstance(line, dict):
                who, said = str(line["id"]), str(line["name"])
                known = "verified" if friends.get(who) == said else f"NOT VERIFIED, {who[:8]}"
                print(f"[{known}] {said}{line['what']}")


async def evening(friends: dict[str, str], alice: Peer, bob: Peer, mallory: Peer) -> None:
    """What happens, as alice sees it."""
    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(show, alice, "alice", friends, ready)
        await ready.wait()
        async with bob.subscribe("room", "bob"):
            await bob.call("say", "good evening")
            try:
                async with mallory.subscribe("room", "bob"):
                    pass
            except SubscribeRefused as rejected:
                print("mallory is told:", rejected.data)
        async with mallory.subscribe("room", "bob"):  # he has left, so the name is free
            await mallory.call("say", "lend me your key, alice")
        await alice.call("say", "you are not bob")
        await alice.call("close")


async def main() -> None:
    host, alice, bob, mallory = (Node(Identity.create()) for _ in range(4))
    async with host, alice, bob, mallory, anyio.create_task_group() as tasks:
        room = Room(host)
        tasks.start_soon(room.watch)
        # Rights go by id as well: there may be another "alice" tomorrow.
        host.roles.assign(alice.node_id, "owner")
        host.on_call("close", allow="owner")(lambda call: room.lines.close())
        address = await host.listen("tcp://127.0.0.1:0")
        peers = [await node.connect(address) for node in (alice, bob, mallory)]
        friends = {str(alice.node_id): "alice", str(bob.node_id): "bob"}
        await evening(friends, *peers)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
