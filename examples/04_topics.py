"""Topics: who may subscribe and what they get first, several subscribers, notes in batches,
and one that is too slow.

Run it with `uv run python examples/04_topics.py`.
"""

import anyio

from parley import Identity, Node, Peer, SubscribeRefused, SubscribeRequest, Topic

NOTES = 1_000


async def read(name: str, peer: Peer, ready: anyio.Event) -> None:
    async with peer.subscribe("prices", data="v2") as prices:
        # What on_subscribe returned: the state on which the notes go on.
        print(f"{name}: subscribed, and told", prices.data)
        ready.set()
        notes = [note async for note in prices]  # ends when the topic is closed
    print(f"{name}: {len(notes)} notes, the last one is", notes[-1])


async def read_batches(name: str, peer: Peer, ready: anyio.Event) -> None:
    async with peer.subscribe("prices", data="v2") as prices:
        ready.set()
        # Notes that came together come as one list: faster, if there are many.
        sizes = [len(notes) async for notes in prices.batches()]
    print(f"{name}: {sum(sizes)} notes in {len(sizes)} batches")


async def several(prices: Topic, peers: list[Peer]) -> None:
    try:
        async with peers[0].subscribe("prices", data="v1"):
            pass
    except SubscribeRefused as rejected:
        print("alice asks for v1: rejected,", rejected.data)

    async with anyio.create_task_group() as readers:
        for name, peer in zip(("alice", "bob"), peers, strict=False):
            ready = anyio.Event()
            readers.start_soon(read, name, peer, ready)
            await ready.wait()
        ready = anyio.Event()
        readers.start_soon(read_batches, "carol", peers[2], ready)
        await ready.wait()
        print(f"publisher: {len(prices.subscribers)} subscribers")
        for price in range(1, NOTES + 1):
            await prices.publish(price)  # encoded once, however many subscribe
        prices.close()  # they get what waits for them, then the end


async def too_slow(ticks: Topic, peer: Peer) -> None:
    # The window is what may wait unread here; what does not fit in waits at the publisher.
    async with peer.subscribe("ticks", window=4_096) as slow:
        for number in range(1, NOTES + 1):
            await ticks.publish({"tick": number, "book": bytes(1_000)})  # nobody reads yet
        ticks.close()
        print(f"publisher: of {NOTES} notes {ticks.dropped} were dropped")
        count, newest = 0, None
        async for note in slow:
            count, newest = count + 1, note["tick"] if isinstance(note, dict) else None
        print(f"slow: {count} notes read and {slow.dropped} lost, the last one is", newest)


async def main() -> None:
    async with (
        Node(Identity.create()) as publisher,
        Node(Identity.create()) as alice,
        Node(Identity.create()) as bob,
        Node(Identity.create()) as carol,
    ):
        prices = publisher.topic("prices")

        @prices.on_subscribe
        async def decide(request: SubscribeRequest) -> object:
            if request.data != "v2":
                raise SubscribeRefused("only v2 is spoken here")
            return {"price": 0}

        # A subscriber that does not keep up loses its oldest notes, by default its subscription,
        # but never its connection; the others lose nothing.
        ticks = publisher.topic("ticks", slow="drop-oldest", buffer=16_384, patience=0)
        address = await publisher.listen("tcp://127.0.0.1:0")
        peers = [await node.connect(address) for node in (alice, bob, carol)]
        await several(prices, peers)
        await too_slow(ticks, peers[0])


if __name__ == "__main__":
    anyio.run(main)
