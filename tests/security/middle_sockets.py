"""The node in the middle of two real nodes: a TCP listener that dials on, event by event.

It tells neither side that the other left, and reads until it is cancelled.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute

from parley._node.protocol.frames import FrameReader, frame
from parley._node.transport.address import Address
from tests.node.protocol.pair import ANY_SIZE, fed
from tests.security.middle import LATER, Passing, Tamper
from tests.security.shapes import FROM_INITIATOR, Shape

GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


@asynccontextmanager
async def listening_middle(target: str, shape: Shape, tamper: Tamper) -> AsyncIterator[str]:
    """The address to dial; whoever does is connected to `target` with `tamper` in between."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's attributes, no query
    place = Address.parse(target)

    async def carry_both(dialler: ByteStream) -> None:
        async with dialler, await anyio.connect_tcp(place.host, place.port) as dialled:
            passed: dict[str, bytes] = {}
            async with anyio.create_task_group() as both:
                for initiator, source, sink in (
                    (True, dialler, dialled),
                    (False, dialled, dialler),
                ):
                    names = [n for n in shape.events if (n in FROM_INITIATOR) == initiator]
                    both.start_soon(_carry, names, passed, tamper, source, sink)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, carry_both)
        yield f"tcp://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


async def _carry(
    names: list[str],
    passed: dict[str, bytes],
    tamper: Tamper,
    source: ByteStream,
    sink: ByteStream,
) -> None:
    reader = FrameReader(ANY_SIZE)
    try:
        while True:
            onward = back = b""
            for event in fed(reader, await source.receive()):
                passing = Passing(
                    names.pop(0) if names else LATER, frame(bytes(event)), dict(passed)
                )
                passed[passing.name] = passing.frame
                instead = tamper(passing)
                onward += instead.onward
                back += instead.back
            for data, stream in ((onward, sink), (back, source)):
                if data:
                    await stream.send(data)
    except GONE:
        return  # it left, and the other is not told
