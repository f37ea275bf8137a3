"""How connections end without an error: Close from either side, and silence.

Sections 9 (Ping) and 11 of docs/protocol.md, with short times in place of long ones.
"""

from time import perf_counter, sleep

import anyio
import pytest

from parley import Peer
from tests.interop.meeting import SIDES, our_node, silence, with_bystander
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, CODES, TYPES

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("side", SIDES)
async def test_who_receives_close_sends_nothing_more(side: Side) -> None:
    def act(peer: ReferencePeer) -> list[tuple[int, int]]:
        peer.handshake()
        peer.send("Call", 1, 1, topic="hold")
        acts.ping(peer)
        peer.send("Close", 0, code=CODES["going-away"], text="for today")
        peer.send("Call", 1, 2, topic="parley.echo", data="after Close")
        seen = len(peer.events)
        with pytest.raises(ConnectionLost):
            acts.wait_for(peer, lambda _: False)
        return [opened.event.type for opened in peer.events[seen:]]

    async with with_bystander() as ours:
        # A Seal may have been on its way already.
        assert set(await ours.meet(act, side)) <= {TYPES["Seal"]}
        assert await ours.ended() == "going-away"
        assert ours.called == [("hold", None)]
        await ours.until(lambda: ours.stopped == ["hold"])


@pytest.mark.parametrize("side", SIDES)
async def test_a_node_that_stops_says_going_away(side: Side) -> None:
    async with our_node() as ours:

        async def stop() -> None:
            await ours.until(lambda: bool(ours.called))
            await ours.node.aclose()

        def act(peer: ReferencePeer) -> list[int]:
            peer.handshake()
            peer.send("Call", 1, 1, topic="hold")
            closed = acts.serve(peer)
            assert silence(peer)
            results = [cells[CELLS["code"]] for cells in acts.received(peer, "Result")]
            return [closed.code, *results]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            code, *results = await ours.meet(act, side)
        assert code == CODES["going-away"]
        # Handlers had no time here (`drain_timeout` is 0), and the call failed with Close.
        assert results == []


@pytest.mark.pure
async def test_after_its_own_close_our_node_reads_on_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reference keeps the connection open and sending; a reset would destroy the Close."""
    monkeypatch.setattr("parley._node.protocol.connection.CLOSE_LINGER", 0.4)

    async def application(peer: Peer) -> None:
        await peer.close(70, "done")

    def act(peer: ReferencePeer) -> tuple[int, str, float]:
        peer.handshake()
        began = perf_counter()
        for _ in range(200):
            peer.send_raw(bytes(4_096))
        code, text = peer.recv_close()
        assert silence(peer)  # its sending side is shut
        for _ in range(100):
            try:
                peer.send_raw(bytes(4_096))
            except ConnectionLost:
                break
            sleep(0.01)
        return code, text, perf_counter() - began

    async with our_node() as ours:
        code, text, took = await ours.meet(act, "responder", application=application)
        assert (code, text) in [(70, "done"), (CODES["bad-record"], "")]
        assert took > 0.3


@pytest.mark.parametrize("side", SIDES)
async def test_our_close_carries_code_and_text(side: Side) -> None:
    async with our_node() as ours:

        async def close() -> None:
            await ours.until(lambda: bool(ours.node.peers))
            await ours.node.peers[0].close(4_000_000_000, "any text")

        def act(peer: ReferencePeer) -> tuple[int, str]:
            peer.handshake()
            return peer.recv_close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
            assert await ours.meet(act, side) == (4_000_000_000, "any text")


# Silence.
