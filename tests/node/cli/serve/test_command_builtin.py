"""The calls that every server answers, between two nodes in this process."""

from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._lbm.codec import Value
from parley._node.cli.serve.command import CLOCK_TOPIC, offer_builtin_calls, offer_clock, tick
from parley._node.dialects.named.codec import Flavour
from parley._node.gateways.named import NamedClient, NamedGateway
from parley._node.messaging.formats import Format
from parley._node.messaging.payloads import Tandem
from parley._node.node import Node
from tests.node.network import meeting

pytestmark = pytest.mark.anyio

DATA: list[Value] = [None, "", b"", b"\xff", -0.0, 2**64 - 1, [{"a": [None, True]}], {}]


async def test_echo_and_info(anyio_backend: str) -> None:
    async with Node(Identity.create()) as server, Node(Identity.create()) as client:
        offer_builtin_calls(server)
        with anyio.fail_after(10):
            peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
            for data in DATA:
                assert await peer.call("parley.echo", data) == data
                assert (await peer.emit("parley.echo", data).reply()).data == data
            info = await peer.call("parley.info")
            await peer.close()
    assert isinstance(info, dict)
    assert info["name"] == "parley"
    assert info["version"] == version("parley-node")
    assert info["node_id"] == str(server.node_id)
    assert info["caller"] == str(client.node_id)
    assert info["role"] == "peer"
    assert info["encrypted"] is True
    assert info["suite"] == peer.suite.names() if peer.suite else False
    assert info["peers"] == 1


@pytest.mark.parametrize("flavour", [Flavour.PLAIN, Flavour.TYPED])
async def test_an_event_in_the_dialect_is_echoed_byte_for_byte(
    anyio_backend: str, flavour: Flavour
) -> None:
    async with Node(Identity.create()) as server, NamedGateway(server, flavour=flavour) as gateway:
        offer_builtin_calls(server)
        with anyio.fail_after(10):
            async with NamedClient(
                await gateway.listen("tcp://127.0.0.1:0"), flavour=flavour
            ) as to:
                for raw in (
                    b"\xc0 of no format",
                    b'\x03{"a": 1}',
                    Tandem(b"1", b"2").encode(),
                    b"y",
                ):
                    assert (await to.emit("parley.echo", raw, format="raw").reply()).raw == raw
                nothing = await to.emit("parley.echo", b"", format="raw").reply()
    assert nothing.data is None if flavour == "typed" else nothing.raw == b""


async def test_a_native_event_is_echoed_in_its_format(anyio_backend: str) -> None:
    async with Node(Identity.create()) as server, Node(Identity.create()) as client:
        offer_builtin_calls(server)
        with anyio.fail_after(10):
            peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
            reply = await peer.emit("parley.echo", [1], format="json").reply()
            raw = await peer.emit("parley.echo", b"\x00", format="raw").reply()
    assert (reply.format, reply.raw) == (Format.JSON, b"[1]")
    assert (raw.format, raw.raw) == (None, b"\x00")


async def test_a_note_each_interval(anyio_backend: str) -> None:
    with anyio.fail_after(10):
        async with meeting() as met, anyio.create_task_group() as tasks:
            topic = offer_clock(met.server)
            async with met.peer.subscribe(CLOCK_TOPIC) as sub:
                began = anyio.current_time()
                tasks.start_soon(tick, topic, 0.05)
                notes = [await anext(sub) for _ in range(4)]
                took = anyio.current_time() - began
            tasks.cancel_scope.cancel()
    assert took >= 0.199
    assert [note["count"] for note in notes if isinstance(note, dict)] == [1, 2, 3, 4]
    for note in notes:
        assert isinstance(note, dict)
        assert sorted(note) == ["count", "time"]
        text = str(note["time"])
        assert text.endswith("Z")
        assert abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()) < 10


class _Log:
    """A topic that only notes when something was published."""

    def __init__(self, late: float) -> None:
        self.times: list[float] = []
        self._late = late

    async def publish(self, data: object) -> None:
        self.times.append(anyio.current_time())
        if len(self.times) == 2:
            await anyio.sleep(self._late)


@pytest.mark.slow
async def test_ticks_do_not_drift_and_missed_ones_are_left_out(anyio_backend: str) -> None:
    log = _Log(late=0.25)
    began = anyio.current_time()
    with anyio.move_on_after(0.75):
        await tick(log, 0.1)  # type: ignore[arg-type]  # all that it asks of a topic
    since = [time - began for time in log.times]
    # Due at 0.1 0.2, then the first multiple after 0.45; never two at once.
    assert since[1] >= 0.199
    assert since[2] >= 0.499
    assert all(later - earlier > 0.03 for earlier, later in pairwise(since))
