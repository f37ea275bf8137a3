"""Tests of calls in applications: answers, refusals, deadlines, limits and endings."""

import json
import logging
import math
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import cast

import anyio
import pytest
from anyio import create_task_group, fail_after, move_on_after

from parley import Call, CallRefused, CallTimeout, NodeConfig, Peer, Stream
from parley._lbm.codec import Value
from parley._lbm.errors import LbmEncodeError
from parley._node.errors import PeerClosedError
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.protocol.limits import UNANSWERED_REQUESTS, Limits
from parley._node.testing import ConnectedNodes
from tests.node.network import config, eventually, meeting, nothing_left, settled, started

pytestmark = pytest.mark.anyio


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting() as met:

        @met.server.on_call("echo")
        async def echo(call: Call) -> Value:
            return call.data

        yield met


VALUES: list[Value] = [
    None,
    True,
    0,
    -(2**64),
    1.5,
    "grüße",
    b"\0\xff",
    [1, [2, {"a": None}]],
    {"k": 1},
    {5: 6},
]


async def test_every_kind_of_value_comes_back(met: ConnectedNodes, anyio_backend: str) -> None:
    for value in VALUES:
        assert await met.peer.call("echo", value) == value


async def test_both_sides_call_each_other(met: ConnectedNodes, anyio_backend: str) -> None:
    @met.client.on_call("back")
    async def back(call: Call) -> Value:
        return [call.data, str(call.peer.node_id) == str(met.server.node_id)]

    assert await met.back.call("back", 7) == [7, True]
    assert await met.peer.call("echo", 8) == 8


async def test_a_handler_may_call_back(met: ConnectedNodes, anyio_backend: str) -> None:
    @met.client.on_call("name")
    async def name(call: Call) -> Value:
        return "alice"

    @met.server.on_call("greet")
    async def greet(call: Call) -> Value:
        return ["hello", await call.peer.call("name")]

    assert await met.peer.call("greet") == ["hello", "alice"]


async def test_a_handler_need_not_be_async(met: ConnectedNodes, anyio_backend: str) -> None:
    met.server.on_call("plain")(lambda call: call.topic)
    assert await met.peer.call("plain") == "plain"


@pytest.mark.parametrize("headers", [None, {}, {"a": 1}])
async def test_headers_are_of_one_kind_whether_there_are_any(
    met: ConnectedNodes, anyio_backend: str, headers: dict[str, int] | None
) -> None:
    met.server.on_call("dump")(lambda call: json.dumps(call.headers))
    assert json.loads(cast(str, await met.peer.call("dump", headers=headers))) == (headers or {})


async def test_a_handler_sees_topic_headers_and_deadline(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    @met.server.on_call("see")
    async def see(call: Call) -> Value:
        left = None if call.deadline is None else call.deadline - call.peer.backend.now()
        return [call.topic, dict(call.headers), left]

    seen = await met.peer.call("see", timeout=5, headers={"a": 1})
    assert isinstance(seen, list)
    topic, headers, left = seen
    assert (topic, headers) == ("see", {"a": 1})
    assert isinstance(left, float)
    assert 4 < left <= 5
    assert await met.peer.call("see", timeout=None) == ["see", {}, None]
    assert await met.peer.call("see", timeout=math.inf) == ["see", {}, None]


async def test_an_unknown_topic_is_refused(met: ConnectedNodes, anyio_backend: str) -> None:
    with pytest.raises(CallRefused, match="topic not found") as caught:
        await met.peer.call("nobody")
    assert caught.value.code == ResultCode.TOPIC_NOT_FOUND


async def test_a_handler_refuses_with_code_and_data(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    @met.server.on_call("no")
    async def no(call: Call) -> Value:
        raise CallRefused(99, {"why": "because"})

    with pytest.raises(CallRefused) as caught:
        await met.peer.call("no")
    assert (caught.value.code, caught.value.data) == (99, {"why": "because"})


@pytest.mark.parametrize("answer", [{1, 2}, 2**64, "\ud800", {1: 1, "a": 2}])
async def test_an_answer_without_encoding_is_a_failed_handler(
    met: ConnectedNodes, anyio_backend: str, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    met.server.on_call("odd")(lambda call: answer)
    with pytest.raises(CallRefused) as caught:
        await met.peer.call("odd")
    assert (caught.value.code, caught.value.data) == (16, "the handler failed")
    assert "cannot encode" in caplog.text
    assert await met.peer.call("echo", 1) == 1


async def test_a_failing_handler_tells_the_log_and_not_the_caller(
    met: ConnectedNodes, anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    @met.server.on_call("bad")
    async def bad(call: Call) -> Value:
        raise ValueError("the password is swordfish")

    with pytest.raises(CallRefused) as caught:
        await met.peer.call("bad")
    assert (caught.value.code, caught.value.data) == (16, "the handler failed")
    assert "swordfish" not in repr(caught.value)
    assert "swordfish" in caplog.text
    assert "'bad'" in caplog.text


async def test_an_answer_that_is_too_large_is_code_21(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    met.server.on_call("large")(lambda call: bytes(met.peer.limits.max_payload))
    with pytest.raises(CallRefused) as caught:
        await met.peer.call("large")
    assert caught.value.code == ResultCode.PAYLOAD_TOO_LARGE
    assert await met.peer.call("echo", 1) == 1


async def test_a_call_that_is_too_large_or_has_no_encoding_is_not_sent(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    with pytest.raises(PayloadTooLargeError):
        await met.peer.call("echo", bytes(met.peer.limits.max_payload))
    with pytest.raises(LbmEncodeError):
        await met.peer.call("echo", object())  # type: ignore[call-overload]  # that is the test
    assert await met.peer.call("echo", 1) == 1
    assert met.back.dropped == 0


async def test_the_caller_s_deadline_ends_call_and_handler(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    ended = anyio.Event()

    @met.server.on_call("slow")
    async def slow(call: Call) -> None:
        try:
            await anyio.sleep(60)
        finally:
            ended.set()

    began = anyio.current_time()
    with pytest.raises(CallTimeout) as caught:
        await met.peer.call("slow", timeout=0.05)
    assert 0.05 <= anyio.current_time() - began < 2
    assert caught.value.code == ResultCode.DEADLINE_EXCEEDED
    assert isinstance(caught.value, TimeoutError)
    with fail_after(2):
        await ended.wait()


@pytest.mark.parametrize("timeout", [0, -1, 1e-9])
async def test_no_time_at_all(met: ConnectedNodes, anyio_backend: str, timeout: float) -> None:
    met.server.on_call("never")(lambda call: anyio.sleep(60))
    with fail_after(2), pytest.raises(CallTimeout):
        await met.peer.call("never", timeout=timeout)


async def test_the_server_keeps_the_deadline_of_a_caller_that_does_not(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    """The caller's clock is stopped, so the server enforces the deadline."""
    met.server.on_call("never")(lambda call: anyio.sleep(60))
    asking = met.peer.outgoing
    async with create_task_group() as tasks:
        outcome = await started(tasks, lambda: met.peer.call("never", timeout=0.05))
        (waiting,) = asking.waiting.by_id.values()
        waiting.slot.discard(waiting)
        await eventually(lambda: bool(outcome))
    assert isinstance(outcome[0], CallTimeout)
    assert met.back.running_calls == 0


async def test_a_cancelled_caller_cancels_the_handler(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    began, ended = anyio.Event(), anyio.Event()

    @met.server.on_call("slow")
    async def slow(call: Call) -> None:
        began.set()
        try:
            await anyio.sleep(60)
        finally:
            ended.set()

    async with create_task_group() as tasks:
        tasks.start_soon(met.peer.call, "slow")
        await began.wait()
        tasks.cancel_scope.cancel()
    with fail_after(2):
        await ended.wait()
    await eventually(lambda: not len(met.peer.outgoing))
    assert met.back.running_calls == 0
    assert await met.peer.call("echo", 1) == 1


async def test_the_id_of_a_cancelled_call_is_busy_until_its_answer(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    met.server.on_call("never")(lambda call: anyio.sleep(60))
    outgoing = met.peer.outgoing.waiting
    with move_on_after(0.01):
        await met.peer.call("never")
    # No further data has been read, so the final answer cannot have arrived.
    assert len(outgoing) == 1
    outgoing.next_ids[1] = 1
    assert await met.peer.call("echo", "another id") == "another id"
    await eventually(lambda: not len(outgoing))
    outgoing.next_ids[1] = 1
    assert await met.peer.call("echo", "the same id") == "the same id"
    assert met.peer.dropped == met.back.dropped == 0


async def test_handler_that_suppresses_cancellation_sends_no_answer(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    finish, finished = anyio.Event(), anyio.Event()

    @met.server.on_call("stubborn")
    async def stubborn(call: Call) -> Value:
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep(60)
        with anyio.CancelScope(shield=True):
            await finish.wait()
        finished.set()
        return "too late"

    async with create_task_group() as tasks:
        outcome = await started(tasks, lambda: met.peer.call("stubborn", timeout=0.02))
        await eventually(lambda: bool(outcome))
        assert isinstance(outcome[0], CallTimeout)
        assert await met.peer.call("echo", 1) == 1
        finish.set()
    with fail_after(2):
        await finished.wait()
    assert await met.peer.call("echo", 2) == 2
    assert met.peer.dropped == 0


async def test_many_calls_at_once_get_their_own_answers(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    @met.server.on_call("later")
    async def later(call: Call) -> Value:
        assert isinstance(call.data, int)
        await anyio.sleep((call.data % 7) / 1000)
        return call.data

    answers: dict[int, Value] = {}

    async def ask(number: int) -> None:
        answers[number] = await met.peer.call("later", number)

    async with create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(ask, number)
    assert answers == {number: number for number in range(300)}


async def test_calls_beyond_the_limit_are_refused_and_others_continue(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    release = anyio.Event()
    codes: list[int] = []

    @met.server.on_call("hold")
    async def hold(call: Call) -> None:
        await release.wait()

    async def ask() -> None:
        try:
            await met.peer.call("hold")
            codes.append(0)
        except CallRefused as refused:
            codes.append(refused.code)

    async with create_task_group() as tasks:
        for _ in range(UNANSWERED_REQUESTS + 3):
            tasks.start_soon(ask)
        await eventually(lambda: len(codes) == 3)
        assert codes == [ResultCode.OVERLOADED] * 3
        release.set()
    assert codes[3:] == [0] * UNANSWERED_REQUESTS


@pytest.mark.parametrize("buffer", [4 << 20, 17 << 20])
async def test_unread_streams_do_not_delay_calls(anyio_backend: str, buffer: int) -> None:
    """Their data waits for credit, and calls are not affected by it."""

    async def stick(stream: Stream) -> None:
        await anyio.sleep_forever()

    async def stuff(peer: Peer) -> None:
        async with peer.open_stream("stuck") as stream:
            await stream.send(bytes(1 << 20))

    both = config(limits=Limits(stream_window=1024), write_buffer=buffer, peer_memory=2**26)
    async with meeting(client=both, server=both) as met, create_task_group() as tasks:
        for node in (met.client, met.server):
            node.on_stream("stuck")(stick)
            node.on_call("echo")(lambda call: call.data)
        for peer in (met.peer, met.back):
            for _ in range(72):
                tasks.start_soon(stuff, peer)
        await eventually(lambda: met.back.core.queued_bytes > buffer)
        await eventually(lambda: met.peer.core.queued_bytes > buffer)
        assert await met.peer.call("echo", 1, timeout=2) == 1
        assert await met.back.call("echo", 2, timeout=2) == 2
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["close", "abort", "lost"])
async def test_pending_calls_fail_when_the_connection_ends(
    met: ConnectedNodes, anyio_backend: str, how: str
) -> None:
    met.server.on_call("never")(lambda call: anyio.sleep(60))

    @met.server.on_stream("never")
    async def never(stream: object) -> None:
        await anyio.sleep_forever()

    peer, back = met.peer, met.back
    reading, writing = peer.open_stream("never"), peer.open_stream("never")

    async def write() -> None:
        while True:
            await writing.send(bytes(1 << 16))

    met.server.on_subscribe("asked")(lambda request: anyio.sleep(60))
    for topic in ("asked", "read", "batches"):
        met.server.topic(topic)

    async def items() -> None:
        async with peer.call_stream("never") as answer:
            await anext(answer)

    async def notes(topic: str) -> None:
        async with peer.subscribe(topic, timeout=None) as notes:
            await anext(notes)

    async def batches() -> None:
        async with peer.subscribe("batches") as notes:
            await anext(aiter(notes.batches()))

    async with create_task_group() as tasks:
        outcomes = [
            await started(tasks, lambda: peer.call("never")),
            await started(tasks, lambda: peer.call("never", timeout=None)),
            await started(tasks, items),
            await started(tasks, lambda: notes("asked")),
            await started(tasks, lambda: notes("read")),
            await started(tasks, batches),
            await started(tasks, reading.receive),
            await started(tasks, write),
            await started(tasks, lambda: peer.open_stream("never", [(64, 2)]).request(64, 1)),
            await started(tasks, lambda: anext(peer.open_stream("never").events())),
        ]
        assert not any(outcomes)
        began = anyio.current_time()
        code = CloseCode.GOING_AWAY
        if how == "close":
            tasks.start_soon(back.close, code)
        elif how == "abort":
            code = CloseCode.PROTOCOL_ERROR
            back.core.abort(back.backend.now(), code, "a test")
            back.driver.step()
        else:
            code = CloseCode.CONNECTION_LOST
            peer.driver.ended()
        outcomes.append(await started(tasks, peer.rekey))
        outcomes.append(await started(tasks, peer.ping))
        await eventually(lambda: all(outcomes))
        assert anyio.current_time() - began < 1
    for (outcome,) in outcomes:
        assert isinstance(outcome, PeerClosedError)
        assert outcome.code == code
    assert (await peer.closed()).code == code
    for ask in (peer.call("echo"), items(), notes("read"), batches(), peer.ping(), peer.rekey()):
        with pytest.raises(PeerClosedError) as caught:
            await ask
        assert caught.value.code == code
    with pytest.raises(PeerClosedError):
        peer.open_stream("x")
    with pytest.raises(PeerClosedError):
        peer.update_keys()
    await peer.close()


@pytest.mark.slow
async def test_nothing_is_left_of_calls(anyio_backend: str) -> None:
    with nothing_left():
        async with meeting() as met:
            met.server.on_call("never")(lambda call: anyio.sleep(60))
            met.server.on_call("echo")(lambda call: call.data)
            for _ in range(20):
                assert await met.peer.call("echo", 1) == 1
                with pytest.raises(CallTimeout):
                    await met.peer.call("never", timeout=0.001)
            del met


@pytest.mark.parametrize(
    "settings",
    [
        config(plaintext="only"),
        config(deliver="sealed"),
        config(limits=Limits(seal_delay_ms=0)),
        config(algorithms={**config().algorithms, "sealing": ("each",)}),
    ],
    ids=["plaintext", "sealed", "each flush", "each event"],
)
async def test_calls_on_other_kinds_of_connection(
    anyio_backend: str, settings: NodeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with meeting(client=settings, server=settings) as met:
        met.server.on_call("echo")(lambda call: call.data)
        with fail_after(3):
            for number in range(5):
                assert await met.peer.call("echo", number) == number
        encrypted = settings.plaintext != "only"
        assert met.peer.encrypted == met.back.encrypted == encrypted
        assert (met.peer.node_id is not None) == encrypted
        assert ("UNENCRYPTED" in caplog.text) != encrypted


async def test_a_call_waits_while_the_transport_is_full(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    """The deadline includes the wait, without leaks afterwards."""
    driver = met.peer.driver
    driver.writable = False
    for _ in range(6):
        met.peer.core.send(1, 0, 64, 1, bytes(1 << 20), lbm=False)
    with pytest.raises(CallTimeout) as late:
        await met.peer.call("echo", timeout=0.02)
    assert late.value.received  # in a handler, it counts as a failure of the handler
    with move_on_after(0.01):
        await met.peer.call("echo")
    assert driver.write_waiters.waiters == []
    async with create_task_group() as tasks:
        outcome = await started(tasks, lambda: met.peer.call("echo", 1, timeout=5))
        assert not outcome
        driver.resume_writing()
    assert outcome == [1]
    await settled()
