"""Named events: replies, namespaces and payload formats; native peers and clients in the
format of the crate bromine meet the same handlers.

Run it with `uv run python examples/09_named_events.py`.
"""

from collections.abc import AsyncIterator

import anyio

from parley import (
    CallRefused,
    Identity,
    NamedEvent,
    Namespace,
    Node,
    Peer,
    Tandem,
    formatted,
    on_event,
)
from parley.dialects import NamedClient, NamedGateway


class Chess(Namespace):
    """Handlers that belong together: events of the namespace `chess`."""

    name = "chess"

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[object] = []

    @on_event("move")
    async def move(self, event: NamedEvent) -> object:
        self.moves.append(event.data)
        return {"moves": len(self.moves)}  # what is returned is the last reply

    @on_event("resign")
    async def resign(self, event: NamedEvent) -> None:
        raise CallRefused(64, "not so early")


def register(node: Node) -> None:
    node.add_namespace(Chess())

    @node.on("ping")
    async def ping(event: NamedEvent) -> None:
        await event.emit("pong", event.data)  # replies to the event that called

    @node.on("countdown")
    async def countdown(event: NamedEvent) -> AsyncIterator[object]:
        for number in (3, 2, 1):
            yield number  # so is what is yielded

    @node.on("thumbnail")
    async def thumbnail(event: NamedEvent) -> None:
        _, picture = event.tandem  # two payloads in one, each read by itself
        await event.emit("thumbnail", picture[:4], format="raw")

    @node.on("greet me")
    async def greet(event: NamedEvent) -> object:
        # Either side may emit: whoever called has handlers of its own.
        greeted = await event.peer.emit("hello", "from the node").reply()
        return greeted.data


async def use(who: str, emitter: Peer | NamedClient) -> None:
    reply = await emitter.emit("ping", "are you there?").reply(timeout=5)
    print(f"{who}: {reply.name},", reply.data)
    moved = await emitter.emit("move", ["e2", "e4"], namespace="chess").reply()
    print(f"{who}:", moved.data)
    try:
        await emitter.emit("resign", namespace="chess").reply()
    except CallRefused as refused:
        print(f"{who}: refused with code {refused.code},", refused.data)
    # The plain format has no mark for the last reply, so its reader says when it is enough.
    async with emitter.emit("countdown").replies() as replies:
        print(f"{who}:", [(await anext(replies)).data for _ in range(3)])
    pair = Tandem(formatted({"kind": "png"}, "msgpack"), b"\x89PNG and more")
    picture = await emitter.emit("thumbnail", pair).reply()
    print(f"{who}:", picture.raw)
    print(f"{who}:", (await emitter.emit("greet me").reply()).data)
    await emitter.emit("nobody listens")  # no reply is wanted, and none comes


async def main() -> None:
    async with (
        Node(Identity.create()) as node,
        Node(Identity.create()) as other,
        NamedGateway(node, flavour="plain") as old,
        NamedGateway(node, flavour="typed") as new,
    ):
        register(node)

        @other.on("hello")
        async def hello(event: NamedEvent) -> object:
            return [event.data, "thanks"]

        await use("native", await other.connect(await node.listen("tcp://127.0.0.1:0")))
        for gateway in (old, new):
            address = await gateway.listen("tcp://127.0.0.1:0")
            # Bromine 0.14 to 0.17 speaks `plain`, 0.18 on `typed`; either could be here.
            # `registrar` are the handlers for what the server emits: here those of a node.
            async with NamedClient(
                address, flavour=gateway.flavour, registrar=other.registrar
            ) as client:
                await use(gateway.flavour, client)
            print(f"{gateway.flavour}: {gateway.ignored} event that nobody listens to")


if __name__ == "__main__":
    anyio.run(main)
