"""Handlers of streams that outlive them: how many of one peer may."""

import anyio
import pytest

from parley import Stream, StreamResetError
from parley._node.peer import stream_handlers as streams
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.limits import Limits
from tests.node.network import eventually, meeting


@pytest.mark.pure  # It replaces a constant of the core.
async def test_handlers_may_outlive_their_streams_up_to_a_bound(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LINGERING_HANDLERS", 2)
    async with meeting(limits=Limits(max_streams=3)) as met:
        begun = running = 0
        leave = anyio.Event()

        @met.server.on_stream("hold")
        async def hold(stream: Stream) -> None:
            nonlocal begun, running
            begun += 1
            running += 1
            await leave.wait()
            running -= 1

        for number in range(5):
            stream = met.peer.open_stream("hold")
            await eventually(lambda most=number + 1: running == most)  # type: ignore[misc]  # bound now
            stream.reset()
        async with met.peer.open_stream("hold") as refused:
            with pytest.raises(StreamResetError) as caught:
                await refused.receive()
        assert caught.value.code == CloseCode.OVERLOADED
        assert running == 5
        leave.set()
        await eventually(lambda: running == 0)
        met.peer.open_stream("hold")
        await eventually(lambda: begun == 6)
