"""A small chat room, with verified authors.

One node hosts the room: a topic publishes the lines, and a call adds one. Names are only claims,
but node IDs are proved, so each guest's screen shows which names it can verify.

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

NOT_HERE = 64  # Applications choose codes from 64 on.
LONGEST = 200  # characters; always limit the size of data from other nodes


class Room:
    """The room: its members are the subscribers of a topic, and `say` publishes a line."""

    def __init__(self, node: Node) -> None:
        self.names: dict[NodeId, str] = {}
        self.announced: dict[NodeId, str] = {}
        self.lines = node.topic("room")
        self.lines.on_subscribe(self.enter)
        node.on_call("say")(self.say)

    def here(self) -> dict[NodeId, str]:
        """Return the names of the current subscribers, by node ID.

        Membership follows from the subscriptions, so it never needs to be updated.
        """
        ids = [subscriber.peer.node_id for subscriber in self.lines.subscribers]
        return {node_id: self.names[node_id] for node_id in ids if node_id in self.names}

    async def enter(self, request: SubscribeRequest) -> object:
        """Accept a subscription with a name, and return the names of the members."""
        name, node_id, here = str(request.data)[:LONGEST], request.peer.node_id, self.here()
        if node_id is None or name in here.values():
            raise SubscribeRefused(f"the name {name} is taken")
        self.names[node_id] = name
        return list(here.values())

    async def say(self, call: Call) -> None:
        """Publish a line. Its author is the caller, whose node ID the handshake has verified."""
        node_id, here = call.peer.node_id, self.here()
        if node_id is None or node_id not in here:
            raise CallRefused(NOT_HERE, "enter the room first")
        await self.publish(node_id, here[node_id], f": {str(call.data)[:LONGEST]}")

    async def watch(self) -> None:
        """Publish a line whenever a member enters, leaves or loses its connection."""
        while True:
            await self.lines.until(lambda: self.here() != self.announced)
            before, self.announced = self.announced, self.here()
            for node_id in self.announced.keys() - before.keys():
                await self.publish(node_id, self.announced[node_id], " has entered")
            for node_id in before.keys() - self.announced.keys():
                await self.publish(node_id, before[node_id], " has left")

    async def publish(self, author: NodeId, name: str, what: str) -> None:
        await self.lines.publish({"id": str(author), "name": name, "what": what})


async def show(room: Peer, name: str, friends: dict[str, str], ready: anyio.Event) -> None:
    """Show the room to one guest. `friends` maps node IDs, verified by other means, to names."""
    async with room.subscribe("room", name) as lines:
        print("present:", lines.data)
        ready.set()
        async for line in lines:  # ends when the room is closed
            if isinstance(line, dict):
                author, name = str(line["id"]), str(line["name"])
                known = "verified" if friends.get(author) == name else f"NOT VERIFIED, {author[:8]}"
                print(f"[{known}] {name}{line['what']}")


async def evening(friends: dict[str, str], alice: Peer, bob: Peer, mallory: Peer) -> None:
    """Run the conversation. The output is what Alice sees."""
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
                print("mallory was rejected:", rejected.data)
        async with mallory.subscribe("room", "bob"):  # Bob has left, so his name is available
            await mallory.call("say", "send me your key, alice")
        await alice.call("say", "you are not bob")
        await alice.call("close")


async def main() -> None:
    host, alice, bob, mallory = (Node(Identity.create()) for _ in range(4))
    async with host, alice, bob, mallory, anyio.create_task_group() as tasks:
        room = Room(host)
        tasks.start_soon(room.watch)
        # Assign rights to the node ID: another guest could also call itself "alice" later.
        host.roles.assign(alice.node_id, "owner")
        host.on_call("close", allow="owner")(lambda call: room.lines.close())
        address = await host.listen("tcp://127.0.0.1:0")
        peers = [await node.connect(address) for node in (alice, bob, mallory)]
        friends = {str(alice.node_id): "alice", str(bob.node_id): "bob"}
        await evening(friends, *peers)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
