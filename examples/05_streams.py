"""Streams: bytes both ways, events of your own with requests and answers, and an end at once.

Run it with `uv run python examples/05_streams.py`.
"""

import struct

import anyio

from parley import Identity, Node, Peer, Stream, StreamEvent, StreamResetError

# An application has the categories from 64 on to itself; subcategories are its event types.
HEATING = 64
READING, SET_TARGET, TARGET_SET = 1, 2, 3
# Which events are answers: the side that asks declares them, and so tells an answer from an event.
ANSWERS = {(HEATING, TARGET_SET)}
OUT_OF_ORDER = 64  # codes from 64 on are the application's, too


async def shout(stream: Stream) -> None:
    # A stream is anyio's ByteStream: whatever speaks over a socket speaks over it.
    async for piece in stream:  # ends with the other side's send_eof
        await stream.send(piece.upper())


async def heating(stream: Stream) -> None:
    async with anyio.create_task_group() as tasks:
        async for event in stream.events():
            # One that takes its time holds up no other: an answer finds its request by the
            # async id that came with it.
            if event.wants_answer and isinstance(event.data, int):
                tasks.start_soon(set_target, stream, event, event.data)


async def set_target(stream: Stream, event: StreamEvent, degrees: int) -> None:
    await anyio.sleep(0.05 if degrees == 19 else 0)
    # What is sent often may have a format of its own in place of LBM.
    await stream.send_event(HEATING, READING, payload=struct.pack("!h", degrees))
    await event.answer(TARGET_SET, {"target": degrees})


async def broken(stream: Stream) -> None:
    stream.reset(OUT_OF_ORDER, "the sensor is gone")  # both directions, now


async def talk_in_bytes(peer: Peer) -> None:
    async with peer.open_stream("shout") as stream:  # leaving it finishes our direction
        await stream.send(b"hello, ")
        await stream.send(b"is it warm?")  # waits if the other side does not read
        await stream.send_eof()
        print("bytes:", b"".join([piece async for piece in stream]).decode())


async def talk_in_events(peer: Peer) -> None:
    async with peer.open_stream("heating", answers=ANSWERS) as stream:

        async def ask(degrees: int) -> None:
            answer = await stream.request(HEATING, SET_TARGET, degrees, timeout=5)
            print(f"request {degrees}: answered with", answer.data)

        async with anyio.create_task_group() as requests:
            for degrees in (19, 21):  # both at once; the second is answered first
                requests.start_soon(ask, degrees)
        await stream.send_eof()
        async for event in stream.events():  # all but the answers
            print("event: it has", *struct.unpack("!h", event.payload), "degrees")


async def meet_a_reset(peer: Peer) -> None:
    async with peer.open_stream("broken") as stream:
        try:
            await stream.receive()
        except StreamResetError as reset:
            print(f"reset: code {reset.code}, {reset.text}")
    # Only the stream is gone; the connection and its other streams are as they were.
    print("still connected:", await peer.ping() < 5)


async def main() -> None:
    async with Node(Identity.create()) as alice, Node(Identity.create()) as bob:
        bob.on_stream("shout")(shout)
        bob.on_stream("heating")(heating)
        bob.on_stream("broken")(broken)
        peer = await alice.connect(await bob.listen("tcp://127.0.0.1:0"))
        await talk_in_bytes(peer)
        await talk_in_events(peer)
        await meet_a_reset(peer)


if __name__ == "__main__":
    anyio.run(main)
