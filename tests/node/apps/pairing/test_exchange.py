"""Tests of node/apps/pairing/exchange.py: a listening node and all kinds of peers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from parley._crypto.spake2 import CONFIRMATION_SIZE, SHARE_SIZE, Spake2
from parley._node.apps.pairing import exchange
from parley._node.apps.pairing.code import Code, CodeGoneError, CodeReset, WrongCodeError
from parley._node.apps.pairing.exchange import FAILED_TRIES, LABEL, CodeListener, take_code
from parley._node.errors import NotTrustedError, PeerClosedError, StreamResetError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.remote.stream import Stream
from parley._node.testing import ConnectedNodes, FaultyLink, connect_nodes
from tests.node.network import eventually, meeting, new_node, settled

CODE = Code(7, "crossover-clockwork")
WRONG = Code(7, "crossover-cobra")


@dataclass
class Place:
    """A node with a code on `met.server`, and a node that can use the code."""

    met: ConnectedNodes
    giver: CodeListener
    failed: list[str] = field(default_factory=list)

    async def take(self, code: Code = CODE) -> None:
        """Use the code, or another one."""
        await take_code(self.met.client, self.met.peer, code)

    async def more(self, node: Node) -> Peer:
        """Connect another node to the listening node."""
        peer, _ = await connect_nodes(node, self.met.server)
        return peer


@asynccontextmanager
async def giving(**settings: Any) -> AsyncIterator[Place]:
    async with meeting(**settings) as met:
        place = Place(met, CodeListener(met.server, CODE))
        place.giver.on_failed = place.failed.append
        yield place


async def opened(place: Place, data: bytes = b"") -> Stream:
    """Open the stream of the exchange for a misbehaving peer."""
    stream = place.met.peer.open_stream(LABEL)
    await stream.send(data or (7).to_bytes(2) + bytes([88] + 31 * [102]))  # the base point
    return stream


async def reset_of(stream: Stream) -> int:
    try:
        while True:
            await stream.receive()
    except StreamResetError as error:
        return error.code


async def test_both_know_each_other(anyio_backend: str) -> None:
    async with giving() as place:
        met, ready = place.met, []
        node_id = await take_code(met.client, met.peer, CODE, lambda: ready.append(True))
        assert node_id == met.server.node_id
        assert ready == [True]
        peer = await place.giver.taker()
        assert peer is met.back
        assert peer.node_id == met.client.node_id
        assert place.failed == []


async def test_receiver_is_ready_before_the_listener_is_notified(anyio_backend: str) -> None:
    async with giving() as place:
        seen: list[bool] = []
        await take_code(
            place.met.client, place.met.peer, CODE, lambda: seen.append(place.giver._taker is None)
        )
        await place.giver.taker()
        assert seen == [True]


async def test_another_word_is_a_try_and_three_are_too_many(anyio_backend: str) -> None:
    async with giving() as place:
        for number in range(FAILED_TRIES):
            with pytest.raises(WrongCodeError, match="another code"):
                await place.take(WRONG)
            assert place.failed == [str(place.met.client.node_id)] * (number + 1)
        with pytest.raises(CodeGoneError, match="no sender waits"):
            await place.take()
        with pytest.raises(WrongCodeError, match="no longer valid"):
            await place.giver.taker()


async def test_another_slot_is_no_try(anyio_backend: str) -> None:
    async with giving() as place:
        for _ in range(FAILED_TRIES):
            with pytest.raises(CodeGoneError):
                await place.take(Code(8, CODE.words))
        await place.take()
        assert await place.giver.taker() is place.met.back


async def test_one_taker_alone(anyio_backend: str) -> None:
    async with giving() as place, new_node() as other:
        await place.take()
        with pytest.raises(CodeGoneError):
            await take_code(other, await place.more(other), CODE)
        assert (await place.giver.taker()).node_id == place.met.client.node_id


@pytest.mark.parametrize("how", ["taken", "given up"])
async def test_other_exchanges_end_when_the_code_is_used(anyio_backend: str, how: str) -> None:
    async with giving() as place, new_node() as other:
        begun = await opened(place)
        assert len(await begun.receive(SHARE_SIZE)) == SHARE_SIZE
        peer = await place.more(other)
        if how == "taken":
            await take_code(other, peer, CODE)
        else:
            for _ in range(FAILED_TRIES):
                with pytest.raises(WrongCodeError):
                    await take_code(other, peer, WRONG)
        assert await reset_of(begun) == CodeReset.GONE
        await eventually(lambda: not place.giver.trying)


async def test_peer_that_does_not_read_loses_its_place(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MESSAGE_TIMEOUT", 0.05)
    async with giving() as place, new_node() as other, FaultyLink() as link:
        peer, back = await connect_nodes(other, place.met.server, link=link)
        back.driver.high_water = 1_024
        filler = back.open_stream("filler")  # until the connection's buffers are full
        link.to_client.stall()
        with anyio.move_on_after(0.05):
            await filler.send(bytes(1 << 20))
        assert not back.driver.can_send
        await peer.open_stream(LABEL).send((7).to_bytes(2) + bytes([88] + 31 * [102]))
        await eventually(lambda: bool(place.giver.giving.expected))
        await eventually(lambda: not place.giver.trying)
        assert place.failed == []


async def test_no_receiver_uses_the_code(anyio_backend: str) -> None:
    async with giving() as place:
        with pytest.raises(CodeGoneError, match="no receiver used the code within 0 s"):
            await place.giver.taker(0.0)


@pytest.mark.parametrize("part", ["all", "confirmations"])
async def test_node_in_the_middle_that_forwards_the_exchange(anyio_backend: str, part: str) -> None:
    """A node in the middle has a session with each side and forwards every byte of the exchange."""
    async with giving() as place, new_node() as middle, new_node() as taker:
        onward = await place.more(middle)

        @middle.on_stream(LABEL)
        async def hand_on(stream: Stream) -> None:
            there = onward.open_stream(LABEL)
            await there.send(await exchange.exchange_message(stream, b"", 2 + SHARE_SIZE))
            await stream.send(await exchange.exchange_message(there, b"", SHARE_SIZE))
            await there.send(await exchange.exchange_message(stream, b"", CONFIRMATION_SIZE))
            if part == "all":
                await stream.send(await exchange.exchange_message(there, b"", CONFIRMATION_SIZE))
            else:
                await stream.send(bytes(CONFIRMATION_SIZE))

        peer, _ = await connect_nodes(taker, middle)
        with pytest.raises((WrongCodeError, CodeGoneError)):
            await take_code(taker, peer, CODE)
        await eventually(lambda: bool(place.failed))
        assert place.failed == [str(middle.node_id)]
        assert not place.giver.giving.taken


async def test_guessing_listener_learns_only_whether_it_was_right(
    anyio_backend: str,
) -> None:
    async with meeting() as met:
        CodeListener(met.server, WRONG)
        with pytest.raises(WrongCodeError):
            await take_code(met.client, met.peer, CODE)


@pytest.mark.parametrize("size", [0, 1, SHARE_SIZE, SHARE_SIZE + CONFIRMATION_SIZE - 1])
async def test_listener_that_aborts(anyio_backend: str, size: int) -> None:
    async with meeting() as met:

        @met.server.on_stream(LABEL)
        async def answer(stream: Stream) -> None:
            await stream.send(bytes([88] + 31 * [102]) + bytes(CONFIRMATION_SIZE)[:size])
            await stream.send_eof()

        with pytest.raises((CodeGoneError, WrongCodeError)):
            await take_code(met.client, met.peer, CODE)


async def test_listener_with_an_invalid_share(anyio_backend: str) -> None:
    async with meeting() as met:
        resets: list[int] = []

        @met.server.on_stream(LABEL)
        async def answer(stream: Stream) -> None:
            await stream.send(bytes(SHARE_SIZE))
            resets.append(await reset_of(stream))

        with pytest.raises(WrongCodeError):
            await take_code(met.client, met.peer, CODE)
        await eventually(lambda: bool(resets))
        assert resets == [CodeReset.MALFORMED]


async def test_a_taker_that_does_as_it_likes(anyio_backend: str) -> None:
    async with giving() as place:
        for data, code in [
            ((8).to_bytes(2) + bytes(32), CodeReset.GONE),
            ((7).to_bytes(2) + bytes(32), CodeReset.MALFORMED),
        ]:
            assert await reset_of(await opened(place, data)) == code
        cut = await opened(place, bytes(5))
        await cut.send_eof()
        assert await reset_of(cut) == CodeReset.MALFORMED
        guess = await opened(place)
        await guess.receive(SHARE_SIZE)
        second = await opened(place)
        assert await reset_of(second) == CodeReset.BUSY
        await guess.send(bytes(CONFIRMATION_SIZE))
        assert await reset_of(guess) == CodeReset.WRONG
        await eventually(lambda: not place.giver.trying)
        await place.take()


async def test_silent_peer_loses_its_place(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with giving() as place:
        monkeypatch.setattr(exchange, "MESSAGE_TIMEOUT", 0.0)
        silent = place.met.peer.open_stream(LABEL)
        assert await reset_of(silent) == CodeReset.MALFORMED
        assert place.failed == []


async def test_cancelled_exchange_is_not_an_attempt(anyio_backend: str) -> None:
    async with giving() as place:
        for _ in range(FAILED_TRIES):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await place.take()
        taken = False
        while not taken:
            try:
                await place.take()
                taken = True
            except CodeGoneError:  # busy: the end of the last exchange has not arrived yet
                await settled()
        assert place.failed == []


async def test_listener_that_stops_waiting(anyio_backend: str) -> None:
    async with giving() as place:
        with anyio.move_on_after(0.0):
            await place.giver.taker()
        await place.take()
        assert await place.giver.taker() is place.met.back


async def test_connection_that_ends_while_the_receiver_gets_ready(anyio_backend: str) -> None:
    """The code has then been used and is no longer valid."""
    async with giving() as place:
        met = place.met

        def ready() -> None:
            raise RuntimeError("not ready")

        with pytest.raises(RuntimeError, match="not ready"):
            await take_code(met.client, met.peer, CODE, ready)
        with pytest.raises(CodeGoneError, match="used the code and disconnected"):
            await place.giver.taker()


async def test_unexpected_bytes(anyio_backend: str) -> None:
    async with giving() as place:
        met = place.met
        ours, stream = Spake2(CODE.password, first=True), met.peer.open_stream(LABEL)
        giver, context = exchange._session(met.peer, CODE)
        await stream.send((7).to_bytes(2) + ours.share)
        share = await stream.receive(SHARE_SIZE)
        confirmations = ours.finish(share, met.client.node_id, giver, context)
        await stream.send(confirmations.ours)
        assert confirmations.check(await stream.receive(CONFIRMATION_SIZE))
        await stream.send(b"more")
        with pytest.raises(CodeGoneError, match="used the code and disconnected"):
            await place.giver.taker()


async def test_a_connection_that_is_lost(anyio_backend: str) -> None:
    async with giving() as place:
        guess = await opened(place)
        await guess.receive(SHARE_SIZE)
        place.met.peer.live.drop(CloseCode.GOING_AWAY)
        await eventually(lambda: not place.giver.trying)
        with pytest.raises(PeerClosedError):
            await place.take()
        assert place.failed == []


async def test_exchange_requires_encryption(anyio_backend: str) -> None:
    async with giving(plaintext="only") as place:
        with pytest.raises(NotTrustedError, match="encrypted"):
            await place.take()
        assert await reset_of(await opened(place)) == CodeReset.MALFORMED


def test_no_log_has_the_words() -> None:
    assert repr(CODE) == "Code(slot=7)"
