"""Row 19: numbers in what a peer answers to our calls, events and subscriptions, and in what
its publisher says of lost notes.

Each is taken, or the one request fails with code 23; the connection goes on. Numbers that a
peer sends unasked: test_row_19_numbers.py.
"""

from collections.abc import Awaitable, Callable

import pytest

from parley import CallRefused, Peer, StreamResetError
from tests.interop.meeting import (
    with_bystander,
)
from tests.interop.test_topics import accept, asked, read
from tests.reference import acts
from tests.reference.peer import ReferencePeer
from tests.reference.wire import (
    TYPES,
)
from tests.security.numbers import (
    LARGEST_CODE,
    NUMBERS,
    assert_calm,
)

pytestmark = pytest.mark.anyio


async def test_a_number_in_the_answer_to_our_call() -> None:
    """A code that fits 32 bits is the caller's to read, all else is malformed."""

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for number in NUMBERS:
            call = acts.wait_for(peer, lambda event: event.type == TYPES["Call"])
            peer.send("Result", 1, call.async_id, code=number)
        acts.serve(peer)

    async def application(peer: Peer) -> None:
        for number in NUMBERS:
            code = await refused_with(peer.call("x", timeout=None))
            assert code == (number if 0 <= number <= LARGEST_CODE else 23)
        await peer.close()

    async with with_bystander() as ours:
        await ours.meet(act, "responder", application=application)
        assert_calm(ours)


async def test_a_number_in_what_answers_our_event() -> None:
    """A format that is none, or a code out of its range, is malformed: a Reply is dropped,
    an End or Error is the end of that event alone."""

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for number in NUMBERS:
            for kind in ("End", "Error"):
                event = acts.wait_for(peer, lambda event: event.type == TYPES["Emit"])
                peer.send("Named Reply", 1, event.async_id, data=b"1", format=number)
                cells = {"data": b"1", "format": number} if kind == "End" else {"code": number}
                peer.send(kind, 1, event.async_id, **cells)
        acts.serve(peer)

    async def application(peer: Peer) -> None:
        for number in NUMBERS:
            for is_error in (False, True):
                replies = peer.emit("x").replies()
                if 0 <= number <= 255 and number != 16:
                    assert (await anext(replies)).format == number
                code = await refused_with(anext(replies))
                if is_error:
                    assert code == (number if 1 <= number <= LARGEST_CODE else 23)
                else:
                    assert code == (0 if 0 <= number <= 255 else 23)
        await peer.close()

    async with with_bystander() as ours:
        await ours.meet(act, "responder", application=application)
        assert_calm(ours)


async def refused_with(call: Awaitable[object]) -> int:
    """The code of an answer."""
    try:
        await call
    except CallRefused as refused:
        return refused.code
    return 0


async def test_a_number_for_the_stream_of_our_subscription() -> None:
    """Only the stream that was opened for it will do, and the connection goes on."""

    def answers(number: int) -> Callable[[ReferencePeer], None]:
        def act(peer: ReferencePeer) -> None:
            peer.handshake()
            event = asked(peer)
            assert acts.open_stream(peer, "topic:news") == 2
            peer.send("Result", 1, event.async_id, code=0, stream=number)
            acts.serve(peer)

        return act

    async def application(peer: Peer) -> int:
        code = await refused_with(peer.subscribe("news").__aenter__())
        assert await refused_with(peer.call("x")) == 1  # no such topic, says the reference
        await peer.close()
        return code

    async with with_bystander() as ours:
        for number in (*NUMBERS, 3, 4, 5):
            _, code = await read(ours, answers(number), application)
            assert code == (0 if number == 2 else 23), number
        assert_calm(ours)


async def test_the_number_of_notes_that_were_lost() -> None:
    """A publisher's word in a header or in a Reset's text, of any size."""
    digits = [*(str(number) for number in NUMBERS), "9" * 20, "9" * 21, "9" * 900, "٣", "²", ""]

    def says(text: str) -> Callable[[ReferencePeer], None]:
        def act(peer: ReferencePeer) -> None:
            peer.handshake()
            stream = accept(peer)
            for number in NUMBERS:
                peer.send("Notify", stream, 0, data=number, headers={"parley.dropped": number})
            text_of_it = f"{text} notes were not read in time"
            peer.send("Reset", 0, stream=stream, code=33, text=text_of_it)
            acts.serve(peer)

        return act

    async def application(peer: Peer) -> tuple[list[object], int]:
        async with peer.subscribe("news") as subscription:
            notes: list[object] = [await anext(subscription) for _ in NUMBERS]
            with pytest.raises(StreamResetError):
                await anext(subscription)
        await peer.close()
        return notes, subscription.dropped

    async with with_bystander() as ours:
        for text in digits:
            _, (notes, dropped) = await read(ours, says(text), application)
            assert notes == list(NUMBERS)
            told = text.isascii() and text.isdigit() and len(text) <= 20
            assert dropped == max(NUMBERS[-1], int(text) if told else 0)
        assert_calm(ours)
