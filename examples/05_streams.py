"""Exchange bytes and events over streams, and reset a stream.

Bob handles three kinds of streams: one echoes bytes in upper case, one answers requests, and one
fails.

Run it with `uv run python examples/05_streams.py`.
"""

import struct

import anyio

from parley import Identity, Node, Peer, Stream, StreamEvent, StreamResetError

# Applications use categories from 64 on. Within a category, the subcategory is the event type.
HEATING = 64
READING, SET_TARGET, TARGET_SET = 1, 2, 3
# The event types that answer requests. The requesting side declares them when it opens the stream,
# so that answers are matched with requests and not returned as events.
ANSWERS = {(HEATING, TARGET_SET)}
OUT_OF_ORDER = 64  # Applications choose reset codes from 64 on.


async def shout(stream: Stream) -> None:
    # A stream is an anyio ByteStream, so it works with code written for sockets.
    async for piece in stream:  # ends when the other side calls send_eof
        await stream.send(piece.upper())


async def heating(stream: Stream) -> None:
    async with anyio.create_task_group() as tasks:
        async for event in stream.events():
            # Handle requests concurrently, so that a slow one does not delay the others. Answers
            # can be sent in any order, because each belongs to a numbered request.
            if event.wants_answer and isinstance(event.data, int):
                tasks.start_soon(set_target, stream, event, event.data)


async def set_target(stream: Stream, event: StreamEvent, degrees: int) -> None:
    await anyio.sleep(0.05 if degrees == 19 else 0)
    # Events can carry raw bytes in a format of your own, which is compact for frequent events.
    await stream.send_event(HEATING, READING, payload=struct.pack("!h", degrees))
    await event.answer(TARGET_SET, {"target": degrees})


async def broken(stream: Stream) -> None:
    stream.reset(OUT_OF_ORDER, "the sensor is out of order")  # ends both directions immediately


async def exchange_bytes(peer: Peer) -> None:
    async with peer.open_stream("shout") as stream:  # leaving the block ends our sending direction
        await stream.send(b"hello, ")
        await stream.send(b"is it warm?")  # waits while the other side is not reading
        await stream.send_eof()
        print("bytes:", b"".join([piece async for piece in stream]).decode())


async def exchange_events(peer: Peer) -> None:
    async with peer.open_stream("heating", answers=ANSWERS) as stream:

        async def request(degrees: int) -> None:
            answer = await stream.request(HEATING, SET_TARGET, degrees, timeout=5)
            print(f"request {degrees}: answered with", answer.data)

        async with anyio.create_task_group() as requests:
            for degrees in (19, 21):  # both run concurrently; the second is answered first
                requests.start_soon(request, degrees)
        await stream.send_eof()
        async for event in stream.events():  # all events except answers
            print("event: the temperature is", *struct.unpack("!h", event.payload))


async def receive_a_reset(peer: Peer) -> None:
    async with peer.open_stream("broken") as stream:
        try:
            await stream.receive()
        except StreamResetError as reset:
            print(f"reset: code {reset.code}, {reset.text}")
    # A reset ends only the stream; the connection and its other streams continue.
    print("still connected:", await peer.ping() < 5)


async def main() -> None:
    async with Node(Identity.create()) as alice, Node(Identity.create()) as bob:
        bob.on_stream("shout")(shout)
        bob.on_stream("heating")(heating)
        bob.on_stream("broken")(broken)
        peer = await alice.connect(await bob.listen("tcp://127.0.0.1:0"))
        await exchange_bytes(peer)
        await exchange_events(peer)
        await receive_a_reset(peer)


if __name__ == "__main__":
    anyio.run(main)
