"""Tests of node/remote/stream.py and the typed side of node/remote/stream.py: events, requests,
answers, cancels, and how all of them end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random  # noqa: TID251  (seeded, to choose the actions)
from typing import Any

import anyio
import pytest
from anyio import (
    BusyResourceError,
    ClosedResourceError,
    EndOfStream,
    create_task_group,
    fail_after,
    move_on_after,
)

from parley import CallTimeout, Stream
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from parley._node.protocol.limits import Limits
from parley._node.remote.stream import WAITING_EVENTS, StreamEvent
from parley._node.testing import ConnectedNodes
from tests.inspection import received_events_of
from tests.node.network import eventually, living, meeting, settled, started

pytestmark = pytest.mark.anyio

# The requests of the tests, and their answers.
ASK = (64, 1)
ANSWER = (64, 2)
ANSWERS = {ANSWER, (255, 255)}


@pytest.fixture(params=["memory", "tcp"])
async def met(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncIterator[ConnectedNodes]:
    async with meeting(limits=Limits(), transport=request.param) as met:
        yield met


async def opened(met: ConnectedNodes) -> tuple[Stream, Stream]:
    """Both ends of a stream, the opener's first; the handler's is in the test's hands."""
    ends: list[Stream] = []

    @met.server.on_stream(f"events {id(ends)}")
    async def handler(stream: Stream) -> None:
        ends.append(stream)
        await anyio.sleep_forever()

    ours = met.peer.open_stream(f"events {id(ends)}", answers=ANSWERS)
    await eventually(lambda: bool(ends))
    return ours, ends[0]


def nothing_waits(met: ConnectedNodes) -> bool:
    """Whether neither side has a stream or a request left; of a core that is over, the
    streams are of no interest."""
    sessions = [peer.core.session for peer in (met.peer, met.back) if peer.is_open]
    requests = len(met.peer.streams.requests) + len(met.back.streams.requests)
    tables = len(met.peer.streams) + len(met.back.streams)
    return not (
        requests or tables or any(session and session.mux.stream_table.open for session in sessions)
    )


async def failure(use: Callable[[], Awaitable[object]]) -> Exception:
    try:
        await use()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


async def fill(stream: Stream) -> None:
    """Send until credit and capacity are used up."""
    while stream._room.is_free:
        with move_on_after(0.05):
            await stream.send_event(64, 1, payload=bytes(50_000))
        await settled()


# Events.


@pytest.mark.parametrize("data", [0, "text", b"\0", [1, [2]], {"a": 1.5}, {7: False}, None])
async def test_data_arrives_as_it_was(met: ConnectedNodes, data: Any) -> None:
    ours, theirs = await opened(met)
    await ours.send_event(64, 1, data)
    event = await theirs.receive_event()
    assert (event.category, event.subcategory, event.async_id) == (64, 1, 0)
    assert event.data == data
    assert event.cells == ({} if data is None else {22: data})
    assert event.payload == (b"" if data is None else encode({22: data}))
    assert not event.wants_answer
    assert not event.cancelled


async def test_a_format_of_one_s_own(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    for payload in (b"", b"\1", b"\0\0", b"not a map"):
        await ours.send_event(255, 255, payload=payload)
        event = await theirs.receive_event()
        assert (event.category, event.subcategory, event.payload) == (255, 255, payload)
        if payload:
            with pytest.raises(LbmDecodeError):
                _ = event.data
    await ours.send_event(70, 8, payload=b"nine byte")
    assert repr(await theirs.receive_event()) == "<StreamEvent 70/8, 9 bytes>"


async def test_both_sides_send_and_events_keep_their_order(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)

    async def send(stream: Stream) -> None:
        for number in range(200):
            await stream.send_event(64 + number % 100, 1 + number % 50, number)
        await stream.send_eof()

    async with create_task_group() as tasks:
        tasks.start_soon(send, ours)
        tasks.start_soon(send, theirs)
        for stream in (ours, theirs):
            assert [event.data async for event in stream.events()] == list(range(200))
            with pytest.raises(EndOfStream):
                await stream.receive_event()
    await eventually(lambda: nothing_waits(met))


async def test_bytes_and_events_have_their_own_readers(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await ours.send_event(64, 1, "first")
    await ours.send(b"bytes")
    await ours.send_event(64, 1, "second")
    await ours.send(b"more")
    await ours.send_eof()
    assert b"".join([piece async for piece in theirs]) == b"bytesmore"
    assert [event.data async for event in theirs.events()] == ["first", "second"]


@pytest.mark.parametrize("kind", ["send_event", "request"])
async def test_what_may_not_be_sent_is_refused_and_changes_nothing(
    met: ConnectedNodes, kind: str
) -> None:
    ours, theirs = await opened(met)
    send = getattr(ours, kind)
    for category, subcategory in [(63, 1), (256, 1), (64, 0), (64, 256), (0, 0), (-1, 1)]:
        with pytest.raises(ValueError, match="invalid event type"):
            await send(category, subcategory, 1)
    with pytest.raises(ValueError, match="give one of them"):
        await send(64, 1, 1, payload=b"x")
    with pytest.raises(LocalProtocolError, match="0x00"):
        await send(64, 1, payload=b"\0")
    with pytest.raises(LbmEncodeError):
        await send(64, 1, object())
    limit = met.peer.limits.max_payload
    for large in ({"data": bytes(limit)}, {"payload": bytes(limit + 1)}):
        with pytest.raises(PayloadTooLargeError):
            await send(64, 1, **large)
    with pytest.raises(TypeError):
        await send(64, 1, payload=5)
    await ours.send_event(64, 1, "fine")
    assert (await theirs.receive_event()).data == "fine"
    assert not len(met.peer.streams.requests)


async def test_a_slow_reader_of_events_slows_its_sender_and_nobody_else(
    met: ConnectedNodes,
) -> None:
    """Also an application that reads only bytes: its events wait under the window."""
    met.server.on_call("echo")(lambda call: call.data)
    ours, theirs = await opened(met)
    sent = 0

    async def write() -> None:
        nonlocal sent
        for _ in range(100):
            await ours.send_event(64, 1, payload=bytes(10_000))
            sent += 1

    window = met.peer.limits.stream_window
    async with create_task_group() as tasks:
        writing = await started(tasks, write)
        await settled()
        assert not writing
        held = sum(cost for _, cost in received_events_of(theirs).items)
        assert held <= window + 10_064
        assert sent <= window // 10_064 + 2 + WAITING_EVENTS
        with fail_after(5):
            assert await met.peer.call("echo", 1) == 1
        for _ in range(100):
            assert len((await theirs.receive_event()).payload) == 10_000
    assert writing == [None]


@pytest.mark.slow
async def test_many_send_at_once_and_one_receives(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)

    async def send(number: int) -> None:
        await ours.send_event(64, 1, [number, bytes(20_000)])

    numbers: list[int] = []
    async with create_task_group() as tasks:
        tasks.start_soon(ours.send, bytes(200_000))
        for number in range(20):
            tasks.start_soon(send, number)
        await settled()
        with pytest.raises(BusyResourceError):
            await ours.send_eof()
        while len(numbers) < 20:
            with move_on_after(0.01):
                data = (await theirs.receive_event()).data
                assert isinstance(data, list)
                assert isinstance(data[0], int)
                numbers.append(data[0])
            with move_on_after(0.01):
                await theirs.receive()
        received = await started(tasks, theirs.receive_event)
        with pytest.raises(BusyResourceError):
            await theirs.receive_event()
        await ours.send_event(64, 1)
        await eventually(lambda: bool(received))
    assert sorted(numbers) == list(range(20))


async def test_a_cancelled_wait_for_room_gives_its_turn_away(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await fill(ours)
    async with create_task_group() as tasks:
        first = anyio.CancelScope()

        async def given_up() -> None:
            with first:
                await ours.send_event(64, 9)

        tasks.start_soon(given_up)
        await settled()
        second = await started(tasks, lambda: ours.send_event(64, 10))
        assert not second
        first.cancel()
        while not second:
            event = await theirs.receive_event()
            await settled()
            assert event.subcategory == 1


async def test_events_on_a_closed_stream_are_answered_by_reset(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await theirs.send_event(64, 1, "unread")
    await settled()
    await ours.aclose()
    for use in (ours.receive_event, lambda: ours.send_event(64, 1), lambda: ours.request(*ASK)):
        assert isinstance(await failure(use), ClosedResourceError)

    async def send_on() -> None:
        while True:
            await theirs.send_event(64, 1)

    with fail_after(5):
        error = await failure(send_on)
    assert isinstance(error, StreamResetError)
    assert error.code == CloseCode.CANCELLED
    await eventually(lambda: nothing_waits(met))


async def test_closing_what_is_finished_gives_the_credit_of_unread_events_back() -> None:
    """Also when no other event is sent (here not even a Seal): otherwise the other side keeps
    waiting.
    """
    async with meeting(limits=Limits(seal_events=1)) as met:
        ours, theirs = await opened(met)
        await fill(theirs)
        await ours.send_eof()
        await settled()
        await ours.aclose()
        with fail_after(5):
            error = await failure(lambda: forever(lambda: theirs.send_event(64, 1)))
        assert isinstance(error, StreamResetError)
        await eventually(lambda: nothing_waits(met))


async def forever(use: Callable[[], Awaitable[object]]) -> None:
    while True:
        await use()


# Requests and answers.


async def serve(stream: Stream) -> None:
    """Answers each request with its data, doubled."""
    async for event in stream.events():
        if event.wants_answer:
            await event.answer(2, [event.data, event.data])


async def test_a_request_is_answered(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        tasks.start_soon(serve, theirs)
        answer = await ours.request(*ASK, "abc", timeout=5)
        assert (answer.category, answer.subcategory) == ANSWER
        assert answer.data == ["abc", "abc"]
        assert not answer.wants_answer
        assert (await ours.request(*ASK, timeout=None)).data == [None, None]
        await ours.aclose()
    await theirs.aclose()
    await eventually(lambda: nothing_waits(met))
    del ours, theirs, answer
    await settled()
    assert living(StreamEvent) == 0


async def test_answers_come_in_any_order_to_whom_they_belong(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    answers: dict[int, object] = {}

    async def ask(number: int) -> None:
        answers[number] = (await ours.request(*ASK, number, timeout=5)).data

    async with create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(ask, number)
        events = [await theirs.receive_event() for _ in range(100)]
        assert sorted(event.async_id for event in events) == list(range(1, 101))
        for event in reversed(events):
            await event.answer(2, event.data)
    assert answers == {number: number for number in range(100)}
    assert not len(met.back.streams.requests)


def asks(event: StreamEvent) -> bool:
    """Its word of the moment."""
    return event.wants_answer


async def test_an_event_is_answered_once(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        asking = await started(tasks, lambda: ours.request(*ASK))
        event = await theirs.receive_event()
        assert asks(event)
        with pytest.raises(PayloadTooLargeError):
            await event.answer(2, payload=bytes(met.peer.limits.max_payload + 1))
        with pytest.raises(ValueError, match="invalid event type"):
            await event.answer(0)
        with move_on_after(0):
            await event.answer(2, "cancelled before it was sent")
        assert asks(event)
        await event.answer(2)
        assert not asks(event)
        with pytest.raises(LocalProtocolError, match=r"cannot answer the event #\d+ .* again"):
            await event.answer(2)
        await eventually(lambda: bool(asking))
        await event.wait_cancelled()
        assert not event.cancelled
        await ours.send_event(*ASK)
        quiet = await theirs.receive_event()
        with pytest.raises(LocalProtocolError, match="it is not a request"):
            await quiet.answer(2)
        await quiet.wait_cancelled()


async def test_a_stream_without_declared_answers_cannot_ask(met: ConnectedNodes) -> None:
    _, theirs = await opened(met)
    with pytest.raises(LocalProtocolError, match="opened without answers"):
        await theirs.request(*ASK)
    with pytest.raises(ValueError, match="invalid event type"):
        met.peer.open_stream("x", answers={(3, 5)})
    assert met.peer.open_stream("x").id == theirs.id + 2


# Giving up.


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_who_gives_up_sends_cancel_and_keeps_the_id(met: ConnectedNodes, how: str) -> None:
    ours, theirs = await opened(met)
    scope = anyio.CancelScope()

    async def ask() -> None:
        with scope:
            await ours.request(*ASK, timeout=0.05 if how == "timeout" else None)

    async with create_task_group() as tasks:
        asking = await started(tasks, ask)
        event = await theirs.receive_event()
        stopped = await started(tasks, event.wait_cancelled)
        if how == "cancelled":
            assert not event.cancelled
            scope.cancel()
        await eventually(lambda: bool(asking and stopped))
    if how == "timeout":
        assert isinstance(asking[0], CallTimeout)
        assert isinstance(asking[0], TimeoutError)
    assert event.cancelled
    assert event.wants_answer
    assert len(met.peer.streams.requests) == len(met.back.streams.requests) == 1
    async with create_task_group() as tasks:
        other = await started(tasks, lambda: ours.request(*ASK, timeout=5))
        second = await theirs.receive_event()
        assert second.async_id != event.async_id
        await event.answer(2, "too late")
        await second.answer(2, "in time")
        await eventually(lambda: bool(other))
    assert isinstance(other[0], StreamEvent)
    assert other[0].data == "in time"
    assert not len(met.peer.streams.requests) + len(met.back.streams.requests)
    assert met.peer.dropped == met.back.dropped == 0


async def test_a_request_that_finds_no_room_in_time(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await fill(ours)
    with fail_after(5), pytest.raises(CallTimeout):
        await ours.request(*ASK, timeout=0.02)
    assert not len(met.peer.streams.requests)
    async with create_task_group() as tasks:
        asking = await started(tasks, lambda: ours.request(64, 7, timeout=5))
        while (event := await theirs.receive_event()).subcategory != 7:
            await settled()
        await event.answer(2)
        await eventually(lambda: bool(asking))
    assert isinstance(asking[0], StreamEvent)


# Ends.


@pytest.mark.parametrize("how", ["finish", "close", "reset", "abort", "end", "lost"])
async def test_requests_that_can_have_no_answer_fail_at_once(met: ConnectedNodes, how: str) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        asking = [await started(tasks, lambda: ours.request(*ASK, timeout=None)) for _ in "ab"]
        await theirs.receive_event()
        match how:
            case "finish":
                await theirs.send_eof()
            case "close":
                await theirs.aclose()
            case "reset":
                theirs.reset(70, "enough")
            case "abort":
                ours.reset()
            case "end":
                tasks.start_soon(met.back.close, CloseCode.GOING_AWAY)
            case "lost":
                met.back.driver.ended()
        with fail_after(5):
            await eventually(lambda: all(asking))
        error = await failure(lambda: ours.request(*ASK))
    expected: dict[str, type[Exception]] = {
        "finish": EndOfStream,
        "close": EndOfStream,
        "reset": StreamResetError,
        "abort": ClosedResourceError,
        "end": PeerClosedError,
        "lost": PeerClosedError,
    }
    for found in (asking[0][0], asking[1][0], error):
        assert type(found) is expected[how]
        if how == "finish":
            assert "answers nothing" in str(found)
        if isinstance(found, StreamResetError):
            assert (found.code, found.text) == (70, "enough")
        if how == "end":
            assert getattr(found, "code", None) == CloseCode.GOING_AWAY
    assert not len(met.peer.streams.requests)
    await ours.aclose()
    theirs.reset()
    await eventually(lambda: nothing_waits(met))


async def test_closing_cancels_what_others_wait_for(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        asking = await started(tasks, lambda: ours.request(*ASK, timeout=None))
        event = await theirs.receive_event()
        assert not event.cancelled
        await ours.aclose()
        await eventually(lambda: bool(asking))
        assert isinstance(asking[0], ClosedResourceError)
        with fail_after(5):
            await event.wait_cancelled()
    await event.answer(2, "nobody reads it, and that is no reason for a Reset")
    await theirs.send_eof()
    await eventually(lambda: nothing_waits(met))
    assert met.peer.dropped == 1


@pytest.mark.parametrize("how", ["finished", "reset", "theirs"])
async def test_an_event_of_a_stream_that_has_ended_cannot_be_answered(
    met: ConnectedNodes, how: str
) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        asking = await started(tasks, lambda: ours.request(*ASK))
        event = await theirs.receive_event()
        if how == "finished":
            await theirs.send_eof()
        elif how == "reset":
            theirs.reset()
        else:
            ours.reset()
        with fail_after(5):
            await event.wait_cancelled()
        assert event.cancelled
        error = await failure(lambda: event.answer(2))
        assert type(error) is (StreamResetError if how == "theirs" else ClosedResourceError)
        assert event.wants_answer
        await eventually(lambda: bool(asking))
    assert not len(met.back.streams.requests)


async def test_what_was_asked_before_a_finish_is_answered_after_it(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        asking = await started(tasks, lambda: ours.request(*ASK, "last", timeout=5))
        await ours.send_eof()
        await serve(theirs)
        await eventually(lambda: bool(asking))
    assert isinstance(asking[0], StreamEvent)
    assert asking[0].data == ["last", "last"]


async def test_a_request_after_our_finish_is_nobody_s(met: ConnectedNodes) -> None:
    """It may cross the Finish; it is received, doesn't count and can't be answered."""
    ours, theirs = await opened(met)
    await theirs.send_eof()
    met.peer.core.send(ours.id, 9, *ASK, b"")
    met.peer.core.send(ours.id, 9, *ASK, b"")
    event = await theirs.receive_event()
    assert not event.wants_answer
    assert (await theirs.receive_event()).async_id == 9
    assert not len(met.back.streams.requests)


# What the other side may not do.


@pytest.mark.parametrize("first", ["call", "event"])
async def test_calls_and_events_share_the_ids_of_a_stream(first: str) -> None:
    async with meeting(drain_timeout=0.0) as met:

        @met.server.on_call("hold")
        async def hold(call: object) -> None:
            await anyio.sleep_forever()

        ours, _ = await opened(met)
        asks = [(3, 1, encode({21: "hold"})), (*ASK, b"")]
        for category, subcategory, payload in asks if first == "call" else reversed(asks):
            met.peer.core.send(ours.id, 5, category, subcategory, payload)
        assert (await met.peer.closed()).code == CloseCode.PROTOCOL_ERROR


async def test_too_many_requests_reset_their_stream(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    for async_id in range(1, 1_026):
        met.peer.core.send(ours.id, async_id, *ASK, b"")
    with pytest.raises(StreamResetError) as caught:
        await ours.receive_event()
    assert caught.value.code == CloseCode.OVERLOADED
    for use in (theirs.receive_event, lambda: theirs.send_event(64, 1)):
        error = await failure(use)
        assert isinstance(error, StreamResetError)
        assert error.code == CloseCode.OVERLOADED
    await eventually(lambda: nothing_waits(met))
    ours, theirs = await opened(met)
    await ours.send_event(64, 1, "fine")
    assert (await theirs.receive_event()).data == "fine"


# All at once.


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.slow
async def test_whatever_is_interleaved_the_connection_stays_usable(seed: int) -> None:
    """Bytes, events, requests, answers, cancels, finishes and resets at random points of both
    sides: afterwards no operation waits, and a new stream works.
    """
    random = Random(seed)
    transport = "tcp" if seed % 2 else "memory"
    limits = Limits(stream_window=random.choice([1_024, 8_192, 262_144]))
    ended = (StreamResetError, ClosedResourceError, EndOfStream, TimeoutError)

    async with meeting(transport=transport, limits=limits) as met:

        async def act(stream: Stream) -> None:
            payload = bytes(random.randrange(0, 3_000)) + b"x"
            match random.randrange(12):
                case 0 | 1:
                    await stream.send(payload)
                case 2 | 3 | 4:
                    await stream.send_event(65, 1, payload=payload)
                case 5 | 6 | 7 | 8:
                    await stream.request(*ASK, payload, timeout=random.random() / 20)
                case 9:
                    await stream.receive()
                case 10:
                    await anyio.sleep(random.random() / 200)
                case 11 if random.random() < 0.1:
                    stream.reset(70)
                case 11 if random.random() < 0.1:
                    await stream.send_eof()

        async def acts(stream: Stream) -> None:
            for _ in range(15):
                with move_on_after(random.random() / 30):
                    try:
                        await act(stream)
                    except (*ended, BusyResourceError):
                        continue

        async def read(stream: Stream) -> None:
            try:
                async for event in stream.events():
                    if event.wants_answer and random.random() < 0.8:
                        with move_on_after(random.random() / 100):
                            await event.answer(2, event.data)
            except ended:
                return

        async def use(stream: Stream) -> None:
            async with stream, create_task_group() as tasks:
                tasks.start_soon(read, stream)
                async with create_task_group() as acting:
                    for _ in range(3):
                        acting.start_soon(acts, stream)
                if random.random() < 0.5:
                    tasks.cancel_scope.cancel()
                else:
                    await stream.aclose()

        @met.server.on_stream("any")
        async def handler(stream: Stream) -> None:
            stream.answers = frozenset(ANSWERS)
            await use(stream)

        async with create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(use, met.peer.open_stream("any", answers=ANSWERS))
        await eventually(lambda: nothing_waits(met))
        assert met.peer.is_open
        assert met.back.is_open
        ours, theirs = await opened(met)
        async with create_task_group() as tasks:
            tasks.start_soon(serve, theirs)
            assert (await ours.request(*ASK, 1, timeout=5)).data == [1, 1]
            await ours.aclose()
