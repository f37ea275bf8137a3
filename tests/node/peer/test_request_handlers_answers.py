"""Tests of node/peer/request_handlers.py: large answers are encoded in slices."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from anyio import create_task_group, sleep_forever

from parley import Call, CallRefused, CallTimeout, NamedEvent, Peer, PeerClosedError
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.node import Node
from parley._node.peer.request_handlers import SLICE
from parley._node.protocol.codes import CALL, MAIN_STREAM, SIM, ResultCode
from parley._node.testing import ConnectedNodes, connect_nodes
from parley._node.transport.loop import TaskStart
from tests.node.network import eventually, new_node

pytestmark = pytest.mark.anyio

# Of 30 slices, and short enough for the answer to a call with `once`.
LARGE = [number % 24 for number in range(30 * SLICE)]


class Witness:
    """A second client, whose calls show that others are served."""

    def __init__(self, server: Node, peer: Peer) -> None:
        self.served = 0
        self._peer = peer
        server.on_call("served")(self._serve)

    def _serve(self, call: Call) -> None:
        self.served += 1

    async def ask_until(self, there: list[Any]) -> None:
        """Call again and again, until something is in a list."""
        while not there:
            await self._peer.call("served")


@pytest.mark.parametrize("kind", ["call", "once", "item", "event", "reply"])
async def test_others_are_served_while_a_large_answer_is_encoded(
    met: ConnectedNodes, kind: str
) -> None:
    began, got = list[int](), list[Any]()

    # Unread replies are limited.
    large = LARGE[: 20 * SLICE] if kind == "reply" else LARGE

    def make() -> Any:
        began.append(witness.served)
        return large

    @met.server.on_call("call")
    @met.server.on_call("once", once=True)
    def answer(call: Call) -> Any:
        return make()

    @met.server.on_call("items")
    async def items(call: Call) -> AsyncIterator[Any]:
        yield make()

    @met.server.on("event")
    def reply(event: NamedEvent) -> Any:
        return make()

    @met.server.on("replies")
    async def replies(event: NamedEvent) -> AsyncIterator[Any]:
        yield make()

    async def ask() -> None:
        if kind == "item":
            async with peer.call_stream("items") as answers:
                got.extend([item async for item in answers])
        elif kind == "event":
            got.append((await peer.emit("event").reply()).data)
        elif kind == "reply":
            got.extend([one.data async for one in peer.emit("replies").replies()])
        else:
            got.append(await peer.call(kind, once=kind == "once"))

    peer, _ = await connect_nodes(
        met.client, met.server
    )  # which learns that calls can be made once
    async with new_node() as other:
        witness = Witness(met.server, (await connect_nodes(other, met.server))[0])
        async with create_task_group() as tasks:
            tasks.start_soon(witness.ask_until, got)
            tasks.start_soon(ask)
    assert got == [large]
    assert witness.served - began[0] >= 3  # at most one, if it was encoded at once
    assert all(one.live.core.answers.held == 0 for one in met.server.peers)


async def test_an_answer_is_what_it_was_when_the_handler_returned(met: ConnectedNodes) -> None:
    state: dict[str, Any] = {"rows": [[number] for number in range(SLICE)], "large": LARGE[:]}
    began: list[int] = []
    expected = {"rows": [[number] for number in range(SLICE)], "large": LARGE}

    @met.server.on_call("state")
    def read(call: Call) -> Any:
        began.append(1)
        return state

    async def change() -> None:
        await eventually(lambda: bool(began))
        await met.peer.call("change")

    @met.server.on_call("change")
    def changed(call: Call) -> None:
        state["large"].clear()
        state["rows"][-1].append("later")
        state["more"] = 1

    got: list[Any] = []

    async def ask() -> None:
        got.append(await met.peer.call("state"))

    async with create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(change)
    assert state["large"] == []
    assert got == [expected]


async def test_what_waits_to_be_encoded_is_bounded(met: ConnectedNodes) -> None:
    met.server.on_call("large")(lambda call: LARGE)
    # The copy of an answer has five bytes for each number, and some.
    met.back.live.core.answers.limit = 2 * 5 * len(LARGE) + 1_000
    codes: list[int] = []

    async def ask() -> None:
        try:
            await met.peer.call("large")
        except CallRefused as refused:
            codes.append(refused.code)

    async with create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert codes == [ResultCode.OVERLOADED] * 3
    assert met.back.live.core.answers.held == 0
    assert await met.peer.call("large") == LARGE


@pytest.mark.parametrize("value", [[*LARGE, object()], [*LARGE, "\ud800"], [*LARGE, 2**64]])
async def test_a_large_answer_without_an_encoding_is_a_failure(
    met: ConnectedNodes, value: Any
) -> None:
    met.server.on_call("large")(lambda call: value)
    with pytest.raises(CallRefused) as caught:
        await met.peer.call("large")
    assert caught.value.code == ResultCode.HANDLER_FAILED


async def test_an_answer_that_nobody_wants_is_not_encoded(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[Any] = []

    @met.server.on_call("large")
    def large(call: Call) -> Any:
        ran.append(call.data)
        return [*LARGE, object()]

    met.peer.live.core.send(MAIN_STREAM, 0, SIM, CALL, encode({keys.TOPIC: "large"}))
    await eventually(lambda: len(ran) == 1)
    await eventually(lambda: met.back.running_calls == 0)
    assert "no encoding" not in caplog.text


async def test_other_types_are_encoded_too(met: ConnectedNodes) -> None:
    met.server.on_call("large")(lambda call: [*LARGE, OrderedDict(a=1), bytearray(b"x"), True])
    assert await met.peer.call("large") == [*LARGE, {"a": 1}, b"x", True]


async def test_a_call_that_is_cancelled_while_its_answer_is_encoded(met: ConnectedNodes) -> None:
    met.server.on_call("large")(lambda call: LARGE)
    met.server.on_call("echo")(lambda call: call.data)
    for _ in range(3):
        async with create_task_group() as tasks:
            tasks.start_soon(met.peer.call, "large")
            await met.peer.call("echo")
            tasks.cancel_scope.cancel()
        await eventually(lambda: met.back.running_calls == 0)
    assert await met.peer.call("large") == LARGE
    assert met.back.live.core.answers.held == 0


@pytest.mark.parametrize("end", ["deadline", "lost"])
async def test_a_call_that_ends_before_the_first_step_of_its_handler(
    met: ConnectedNodes, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On trio and on asyncio before Python 3.12 the handler's task starts later."""
    began, ended = list[int](), list[int]()

    @met.server.on_call("wait")
    async def wait(call: Call) -> None:
        began.append(1)
        try:
            await sleep_forever()
        finally:
            ended.append(1)

    met.server.on_call("echo")(lambda call: call.data)
    await met.peer.call("echo")  # The first request may change the held data.
    live = met.back.live
    held, begin = live.core.account.held, live.backend.start_tasks

    def begin_and_end(begun: Iterable[TaskStart]) -> None:
        begin(begun)
        if end == "lost":
            live.lost("a test")
        else:
            met.back.calls.expire_calls(live.backend.now() + 3600)
            live.driver.step()

    monkeypatch.setattr(live.backend, "start_tasks", begin_and_end)
    with pytest.raises((CallRefused, CallTimeout, PeerClosedError)):
        await met.peer.call("wait", timeout=60)
    monkeypatch.undo()
    await eventually(lambda: met.back.running_calls == 0 and len(began) == len(ended))
    assert live.core.account.held <= held
    if end == "deadline":
        assert await met.peer.call("echo", 7) == 7
