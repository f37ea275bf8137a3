"""Publish notes on topics, and control subscriptions and slow subscribers.

A publisher decides who may subscribe and sends each new subscriber the current state. Three nodes
subscribe, one of them reading in batches. Finally, one subscriber is too slow.

Run it with `uv run python examples/04_topics.py`.
"""

import anyio

from parley import Identity, Node, Peer, SubscribeRefused, SubscribeRequest, Topic

NOTES = 1_000


async def read(name: str, peer: Peer, ready: anyio.Event) -> None:
    async with peer.subscribe("prices", data="v2") as prices:
        # The data that on_subscribe returned: the state at the time of the subscription.
        print(f"{name}: subscribed, initial data", prices.data)
        ready.set()
        notes = [note async for note in prices]  # ends when the publisher closes the topic
    print(f"{name}: {len(notes)} notes, the last is", notes[-1])


async def read_batches(name: str, peer: Peer, ready: anyio.Event) -> None:
    async with peer.subscribe("prices", data="v2") as prices:
        ready.set()
        # A batch contains all notes that have arrived. It is faster when there are many.
        sizes = [len(notes) async for notes in prices.batches()]
    print(f"{name}: {sum(sizes)} notes in {len(sizes)} batches")


async def several(prices: Topic, peers: list[Peer]) -> None:
    try:
        async with peers[0].subscribe("prices", data="v1"):
            pass
    except SubscribeRefused as rejected:
        print("alice subscribes to v1: rejected,", rejected.data)

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
            await prices.publish(price)  # encoded only once, for all subscribers
        prices.close()  # subscribers receive the remaining notes, then the end


async def too_slow(ticks: Topic, peer: Peer) -> None:
    # The window limits the unread bytes at the subscriber. Further notes wait at the publisher.
    async with peer.subscribe("ticks", window=4_096) as slow:
        for number in range(1, NOTES + 1):
            await ticks.publish({"tick": number, "book": bytes(1_000)})  # not read yet
        ticks.close()
        print(f"publisher: dropped {ticks.dropped} of {NOTES} notes")
        count, newest = 0, None
        async for note in slow:
            count, newest = count + 1, note["tick"] if isinstance(note, dict) else None
        print(f"slow: {count} notes read and {slow.dropped} lost, the last is", newest)


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
                raise SubscribeRefused("only v2 is supported")
            return {"price": 0}

        # With drop-oldest, a slow subscriber loses its oldest notes. By default it would lose the
        # subscription. In both cases it stays connected, and other subscribers are not affected.
        ticks = publisher.topic("ticks", slow="drop-oldest", buffer=16_384, patience=0)
        address = await publisher.listen("tcp://127.0.0.1:0")
        peers = [await node.connect(address) for node in (alice, bob, carol)]
        await several(prices, peers)
        await too_slow(ticks, peers[0])


if __name__ == "__main__":
    anyio.run(main)
