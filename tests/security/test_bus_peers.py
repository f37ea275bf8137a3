"""Limits on what a hostile peer can make a node store, and on the use of withdrawn permissions.

See docs/threat-model.md, B1, B3 and B5. Malformed and excessive requests: tests/node/remote_bus.
"""

from typing import Any

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.data import encode_body
from parley._node.bus.model import Delivery, NewEvent
from parley._node.bus.remote import limits
from parley._node.bus.remote.authorisation import BusRequest
from parley._node.bus.remote.messages import (
    Ack,
    Claim,
    Join,
    Own,
    Publish,
    Read,
    ReadHistory,
    Touch,
    encode_request,
)
from parley._node.protocol.codes import BUS, CloseCode, ResultCode
from parley._node.protocol.limits import Limits
from tests.node.bus.buses import a_bus
from tests.node.bus.model_store import ModelStore
from tests.node.bus.remote.offered import GROUP, NAME, Between, ask, between, given, new
from tests.node.network import eventually, settled, started

pytestmark = pytest.mark.anyio

JOIN = Join(NAME, GROUP, "c", "0-0")


class Rights:
    """An `allow=` whose result the test can change, and which can hang."""

    def __init__(self) -> None:
        self.answer: Any = True
        self.hangs = False
        self.asked = 0

    async def __call__(self, request: BusRequest) -> Any:
        self.asked += 1
        if self.hangs:
            await anyio.sleep_forever()
        return self.answer


@pytest.mark.parametrize("request_", [given(), Read(NAME, GROUP, "c", 1, 30.0)])
async def test_a_rule_that_never_answers_ends_with_the_connection(
    anyio_backend: str, request_: Publish | Read
) -> None:
    rights = Rights()
    rights.hangs = True
    async with between(rights) as bus:
        number, payload = encode_request(request_)
        stream = bus.stream()
        bus.nodes.peer.core.send(stream.id, 9, BUS, number, payload)
        await eventually(lambda: rights.asked == 1)
        bus.nodes.peer.live.drop(CloseCode.NORMAL)
        await eventually(lambda: not bus.service.usages)


async def test_who_gives_up_does_not_wait_for_the_rule(anyio_backend: str) -> None:
    rights = Rights()
    rights.hangs = True
    async with between(rights) as bus:
        stream = bus.stream()
        with anyio.move_on_after(0.05):
            await ask(stream, given())
        rights.hangs = False
        await eventually(lambda: rights.asked == 1)
        assert (await ask(stream, JOIN)).code == 0
        assert (await bus.store.streams())[0].length == 0


@pytest.mark.parametrize("kind", ["read", "history"])
async def test_a_right_that_is_taken_away_ends_a_long_wait_too(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(limits, "ASKED_AGAIN_AFTER", 0.0)
    rights = Rights()
    async with between(rights) as bus, anyio.create_task_group() as tasks:
        stream = bus.stream()
        await ask(stream, JOIN)
        request = Read(NAME, GROUP, "c", 5, 30.0)
        if kind == "history":
            request = ReadHistory(NAME, 5, "$", None, 30.0)  # type: ignore[assignment]
        outcome: list[Any] = await started(tasks, lambda: ask(stream, request, 30.0))
        await eventually(lambda: rights.asked == 2)  # granted for the Join and for this request
        rights.answer = 1  # a value that isn't True
        await bus.store.publish([new(1)], durable=True)
        await eventually(lambda: bool(outcome))
        assert (outcome[0].code, outcome[0].rows) == (ResultCode.NOT_AUTHORISED, None)
        if kind == "read":
            claimed = await bus.store.claim(NAME, GROUP, "another", 5, 1_000.0)
            assert [one.attempt for one in claimed] == [1]


async def test_one_stream_speaks_for_so_many_consumers(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONSUMERS", 2)
    async with between() as bus:
        stream = bus.stream()
        for consumer in ("a", "b", "a"):
            assert (await ask(stream, Join(NAME, GROUP, consumer, "0-0"))).code == 0
        for request in (
            Join(NAME, "other", "a", "0-0"),
            Read(NAME, GROUP, "c", 1),
            Read(NAME, GROUP, "c", 1, 0.01),
            Own(NAME, GROUP, "c", 1),
            Claim(NAME, GROUP, "c", 1, 0.0),
            Touch(NAME, GROUP, "c", ["1-1"]),
        ):
            assert (await ask(stream, request)).code == ResultCode.OVERLOADED
        assert (await ask(stream, Ack(NAME, GROUP, ["1-1"]))).code == 0
        assert len(await bus.store.consumers(NAME, GROUP)) == 2
        assert len(await bus.store.groups(NAME)) == 1


@pytest.mark.pure
async def test_who_takes_no_answers_is_handed_little(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short requests can have large answers: these are not fetched before they can be sent."""
    monkeypatch.setattr(limits, "LARGE_ANSWERS", 2)
    monkeypatch.setattr(limits, "WAITING_READS", 3)
    async with between(limits=Limits(stream_window=1_024)) as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        body = encode_body({"x": "x" * 9_000}, 10_000)
        await bus.store.publish([NewEvent(NAME, {}, body)] * 60, durable=True)
        for wait in (0.0, 30.0):
            _ask_in_vain(bus, stream.id, Read(NAME, GROUP, "c", 1, wait), 24)
        await settled()
        await eventually(lambda: bus.store.table[NAME].groups[GROUP].pending)
        await settled()
        answered = 8  # at most, because the queue has capacity for it
        pending = bus.store.table[NAME].groups[GROUP].pending
        assert len(pending) <= 2 + 3 + answered


def _ask_in_vain(bus: Between, stream: int, request: Read, times: int) -> None:
    core, (number, payload) = bus.nodes.peer.core, encode_request(request)
    core.consume = lambda *_: None  # type: ignore[method-assign]
    for async_id in range(times):
        core.send(stream, 100 + async_id + 100 * bool(request.wait), BUS, number, payload)


class Unspeakable(ModelStore):
    """A store with an event that doesn't fit into any answer."""

    async def read(self, *arguments: Any) -> list[Delivery]:
        found = await super().read(*arguments)
        return [Delivery(one.event._replace(version=2**70), 1) for one in found]


async def test_whatever_goes_wrong_is_answered_and_goes_back(anyio_backend: str) -> None:
    async with between(store=Unspeakable(BusConfig())) as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        await bus.store.publish([new(1)], durable=True)
        answer = await ask(stream, Read(NAME, GROUP, "c", 1))
        assert (answer.code, answer.text) == (ResultCode.HANDLER_FAILED, "")
        (pending,) = await bus.store.pending(NAME, GROUP, 5, "0-0")
        assert pending.due_in == 0


class Misnaming(ModelStore):
    """A store that returns events under another name, as another node's store may."""

    async def read(self, *arguments: Any) -> list[Delivery]:
        found = await super().read(*arguments)
        return [one._replace(event=one.event._replace(name="any.other")) for one in found]


async def test_what_another_node_hands_out_has_to_be_as_its_schema_says(
    anyio_backend: str,
) -> None:
    async with a_bus(Misnaming(BusConfig())) as (bus, _):
        bus.schema(NAME, {"required": ["ok"]}, validate="consume")
        await bus.publish_many(NAME, [{"n": 1}, {"ok": 1}])
        async with bus.consume(NAME, GROUP) as events:
            assert (await anext(events)).data == {"ok": 1}
        assert len(await bus.dead_letters(NAME)) == 1
