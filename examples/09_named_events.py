"""Named events, with replies, namespaces and payload formats.

The same handlers serve native peers and clients that use the format of bromine, a Rust crate.

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
    """A namespace groups handlers: these handle events in the namespace `chess`."""

    name = "chess"

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[object] = []

    @on_event("move")
    async def move(self, event: NamedEvent) -> object:
        self.moves.append(event.data)
        return {"moves": len(self.moves)}  # the return value is the last reply

    @on_event("resign")
    async def resign(self, event: NamedEvent) -> None:
        raise CallRefused(64, "not so early")


def register(node: Node) -> None:
    node.add_namespace(Chess())

    @node.on("ping")
    async def ping(event: NamedEvent) -> None:
        await event.emit("pong", event.data)  # sends a reply

    @node.on("countdown")
    async def countdown(event: NamedEvent) -> AsyncIterator[object]:
        for number in (3, 2, 1):
            yield number  # each yielded value is also a reply

    @node.on("thumbnail")
    async def thumbnail(event: NamedEvent) -> None:
        _, picture = event.tandem  # two payloads in one event, each in its own format
        await event.emit("thumbnail", picture[:4], format="raw")

    @node.on("greet me")
    async def greet(event: NamedEvent) -> object:
        # Both sides can emit events: the caller has handlers too.
        greeted = await event.peer.emit("hello", "from the node").reply()
        return greeted.data


async def use(label: str, emitter: Peer | NamedClient) -> None:
    reply = await emitter.emit("ping", "are you there?").reply(timeout=5)
    print(f"{label}: {reply.name},", reply.data)
    moved = await emitter.emit("move", ["e2", "e4"], namespace="chess").reply()
    print(f"{label}:", moved.data)
    try:
        await emitter.emit("resign", namespace="chess").reply()
    except CallRefused as refused:
        print(f"{label}: refused with code {refused.code},", refused.data)
    # The plain format does not mark the last reply, so read as many replies as you expect.
    async with emitter.emit("countdown").replies() as replies:
        print(f"{label}:", [(await anext(replies)).data for _ in range(3)])
    pair = Tandem(formatted({"kind": "png"}, "msgpack"), b"\x89PNG and more")
    picture = await emitter.emit("thumbnail", pair).reply()
    print(f"{label}:", picture.raw)
    print(f"{label}:", (await emitter.emit("greet me").reply()).data)
    await emitter.emit("without handlers")  # without waiting for a reply


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
            # Bromine 0.14 to 0.17 uses `plain`, and 0.18 and later use `typed`. `registrar` has the
            # client's handlers for events that the server emits; here they are the handlers of a
            # node.
            async with NamedClient(
                address, flavour=gateway.flavour, registrar=other.registrar
            ) as client:
                await use(gateway.flavour, client)
            print(f"{gateway.flavour}: {gateway.ignored} event without a handler")


if __name__ == "__main__":
    anyio.run(main)
