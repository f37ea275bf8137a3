"""The metrics of a node: each event is counted once, under the right names."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import create_revocation
from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.bus.bus import Bus
from parley._node.bus.model import GroupInfo
from parley._node.config import NodeConfig
from parley._node.errors import CallRefused, HandshakeError
from parley._node.journal.journal import Journal
from parley._node.metrics.catalogue import CATALOGUE
from parley._node.node import Node
from parley._node.remote.requests import Call
from parley._node.server.federation import Federation
from parley._node.settings import FederationSettings
from parley._node.testing import ConnectedNodes, FakeClock, connect_nodes, connected_nodes
from tests.inspection import connections_of
from tests.node.metrics.reading import read
from tests.node.network import eventually, new_node

KEY = AuditorPrivateKey.create().public
FAST = NodeConfig(algorithms={"kex": ("x25519",)})


def offering() -> Node:
    node = Node(Identity.create(), config=FAST)

    @node.on_call("shop.order")
    async def order(call: Call) -> Any:
        if call.data == "no":
            raise CallRefused(99, "sold out")
        if call.data == "bug":
            raise KeyError
        return call.data

    @node.on_call("admin.*")
    async def admin(call: Call) -> Any:
        await anyio.sleep_forever()

    return node


async def refused(made: ConnectedNodes, topic: str, data: Any = None, **options: Any) -> None:
    with pytest.raises(CallRefused):
        await made.peer.call(topic, data, **options)


async def test_calls_are_counted_by_handler_and_code_on_both_sides(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected_nodes(None, offering()) as made:
        await made.peer.call("shop.order", 1)
        await made.peer.call("shop.order", 2)
        await refused(made, "shop.order", "no")
        await refused(made, "shop.order", "bug")
        await refused(made, "nobody.has.this")
        await refused(made, "admin.one", timeout=0.01)
        await refused(made, "admin.two", timeout=0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(made.peer.call, "admin.three"))
            await anyio.wait_all_tasks_blocked()
            server = partial(read, made.server.metrics)
            assert server("requests_running") == 1
            assert read(made.client.metrics, "requests_waiting") == 1
            tasks.cancel_scope.cancel()
        await made.peer.ping()
        client = partial(read, made.client.metrics)
        received = partial(server, "calls_received_total")
        assert received(topic="shop.order", code="accepted") == 2
        assert received(topic="shop.order", code="other") == 1
        assert received(topic="shop.order", code="handler-failed") == 1
        # The result depends on which comes first, the local deadline or the caller's Cancel.
        late = received(topic="admin.*", code="deadline-exceeded")
        assert late + received(topic="admin.*", code="cancelled") == 3
        assert received() == 7
        assert server("call_received_seconds", topic="shop.order") == 4
        assert server("requests_refused_total", code="topic-not-found") == 1
        made_by = partial(client, "calls_made_total")
        assert made_by(code="accepted") == 2
        assert made_by(code="deadline-exceeded") == 2
        assert made_by(code="topic-not-found") == 1
        assert made_by(code="given-up") == 1
        assert client("call_made_seconds") == made_by() == 8
        assert server("requests_running") == client("requests_waiting") == 0


async def test_no_peer_makes_a_label(anyio_backend: Any) -> None:
    async with connected_nodes(None, offering()) as made:
        before = labels(made.server)
        for number in range(3):
            await refused(made, f"peers.{number}")
            await refused(made, f"admin.{number}", timeout=0.001)
        told = labels(made.server) - before
    assert all("peers." not in one and "admin.0" not in one for one in told)
    assert not any(str(made.client.node_id) in one for one in told | before)


def labels(node: Node) -> set[str]:
    return {
        one for family in node.metrics.collect() for its in family.samples for one in its.labels
    }


async def test_connections_and_handshakes(anyio_backend: Any) -> None:
    async with connected_nodes(None, offering()) as made:
        server, client = (partial(read, node.metrics) for node in (made.server, made.client))
        assert server("connections", direction="accepted", state="open") == 1
        assert client("connections", direction="dialled", state="open") == 1
        assert server("handshakes_total", direction="accepted", result="ok") == 1
        assert server("handshake_seconds") == 1
        assert server("connections_limit") == FAST.max_connections
        came = server("received_bytes_total")
        assert came == client("sent_bytes_total") > 0
        other = Node(Identity.create(), config=NodeConfig(algorithms={"kex": ("x25519-mlkem768",)}))
        async with other:
            with pytest.raises(HandshakeError):
                await connect_nodes(other, made.server)
        assert server("handshakes_total", result="no-common-algorithm") == 1
        await made.peer.close()
        await made.back.live.closed()
        await made.server.connections._changes.until(lambda: not connections_of(made.server))
        assert server("connections") == 0
        assert server("connections_ended_total", code="normal") == 1
        assert server("received_bytes_total") > came  # including disconnected peers' counts


async def test_notes_by_topic(anyio_backend: Any) -> None:
    async with connected_nodes(None, offering()) as made:
        topic = made.server.topic("news", slow="drop-oldest", buffer=1_024)
        async with made.peer.subscribe("news") as subscription:
            await topic.publish(1)
            assert await anext(subscription) == 1
            server = partial(read, made.server.metrics, topic="news")
            assert server("subscribers") == server("notes_published_total") == 1
            assert server("notes_delivered_total") == 1
            assert read(made.client.metrics, "notes_received_total") == 1
        await topic.publish(2)
        assert server("notes_published_total") == 2
        assert server("notes_delivered_total") == 1


async def test_waits_for_credit_and_for_room_are_counted(anyio_backend: Any) -> None:
    node = Node(Identity.create(), config=FAST)
    read_on = anyio.Event()

    @node.on_stream("bulk")
    async def bulk(stream: Any) -> None:
        await read_on.wait()
        while await stream.receive():
            pass

    async with connected_nodes(None, node) as made:
        stream = made.peer.open_stream("bulk")
        async with anyio.create_task_group() as tasks:

            async def send() -> None:
                for _ in range(40):
                    await stream.send(bytes(16_384))

            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            client = partial(read, made.client.metrics)
            assert client("streams") == 1
            assert client("credit_waits_total") >= 1
            assert client("queued_bytes") > 0
            assert read(made.server.metrics, "memory_held_bytes") > 0
            read_on.set()
        await stream.aclose()


async def test_loop_iterations_are_measured_while_metrics_are_read(anyio_backend: Any) -> None:
    clock = FakeClock()
    async with Node(Identity.create(), config=FAST, clock=clock) as node:
        await clock.tick(1.0)
        assert read(node.metrics, "loop_lag_seconds") == 0
        with node.metrics.watched():
            for _ in range(3):
                await clock.tick(0.25)
            assert read(node.metrics, "loop_lag_seconds") == 3
            assert read(node.metrics, "loop_turn_processor_seconds") == 3
        await clock.tick(0.25)
        await clock.tick(0.25)
        assert read(node.metrics, "loop_lag_seconds") == 4  # the last one was in transit
        assert read(node.metrics, "loop_processor_seconds_total") > 0


async def test_the_journal_of_a_node(anyio_backend: Any, tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, KEY)
    server = Node(Identity.create(), config=FAST, journal=journal)
    async with connected_nodes(None, server) as made:
        await made.peer.ping()
        await journal.sync()
        assert read(server.metrics, "journal_records_total") > 0
        assert read(server.metrics, "journal_written_bytes_total") > 0
        assert read(server.metrics, "journal_sessions") == 1
        assert read(server.metrics, "journal_failed") == 0


async def test_buses_and_how_far_groups_are_behind(anyio_backend: Any, tmp_path: Path) -> None:
    clock = FakeClock()
    async with Node(Identity.create(), config=FAST, clock=clock) as node:
        bus = node.bus(f"sqlite:///{tmp_path / 'bus.db'}")
        for number in range(3):
            await bus.publish("shop.ordered", {"n": number})
        async with bus.consume("shop.ordered", "mail", batch=1) as events:
            event = await anext(events)
            await node.metrics.refresh()
            lag = partial(read, node.metrics, "bus_lag", stream="shop.ordered")
            assert lag() == 2
            assert read(node.metrics, "bus_pending") == 1
            assert read(node.metrics, "bus_events_total", outcome="published") == 3
            await event.ack()
        await bus.publish("shop.ordered", {"n": 3})
        await node.metrics.refresh()
        assert lag() == 2  # cached: it was read a moment ago
        clock.advance(10.0)
        await node.metrics.refresh()
        assert lag() == 3
        assert read(node.metrics, "buses_unreachable") == 0
        node.bus(f"sqlite:///{tmp_path / 'nowhere' / 'bus.db'}")
        clock.advance(10.0)
        await node.metrics.refresh()
        assert read(node.metrics, "buses_unreachable") == 1


async def test_events_of_peers_are_counted(anyio_backend: str, tmp_path: Path) -> None:
    async with new_node() as server, new_node() as client:
        own = server.bus(f"sqlite:///{tmp_path}/bus.db", allow=lambda request: True)
        peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
        async with peer.bus() as bus:
            for key in ("a", "a", "b"):
                await bus.publish("shop.ordered", {}, idempotency_key=key)
            await bus.publish_many("shop.ordered", [{}, {}])
            async with bus.consume("shop.ordered", "mail", batch=1, max_attempts=2) as events:
                ids: list[str] = []
                while len(ids) < 5:
                    event = await anext(events)
                    ids.append(event.id)
                    if event.id == ids[0]:
                        await event.nack(
                            delay=0
                        )  # it is delivered again, and then becomes a dead letter
        expected = {
            "published": 4,
            "delivered": 5,
            "acknowledged": 3,
            "failed": 2,
            "retried": 1,
            "dead-lettered": 1,
        }

        def counted() -> dict[str, float | None]:
            read_total = partial(read, server.metrics, "bus_events_total")
            return {name: read_total(outcome=name) for name in expected}

        await eventually(lambda: counted() == expected)
        assert own.counters.published == 4


async def test_buses_are_asked_side_by_side(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several slow buses delay a collection no longer than one does."""
    asked: list[Bus] = []
    both = anyio.Event()

    async def groups(bus: Bus) -> list[GroupInfo]:
        asked.append(bus)
        if len(asked) == 2:
            both.set()
        await both.wait()
        return []

    monkeypatch.setattr(Bus, "groups", groups)
    async with Node(Identity.create(), config=FAST) as node:
        for name in ("one", "other"):
            node.bus(f"sqlite:///{tmp_path / name}")
        await node.metrics.refresh()
        assert read(node.metrics, "buses_unreachable") == 0


async def test_links_and_their_attempts(anyio_backend: Any) -> None:
    async with offering() as server, Node(Identity.create(), config=FAST) as client:
        address = await server.listen("memory://linked")
        async with client.link(address) as link:
            peer = await link.ready()
            assert read(client.metrics, "links", state="up") == 1
            assert read(client.metrics, "link_sessions_total") == 1
            assert read(client.metrics, "link_failures_total") == 0
            await peer.close()
            await link.changes.until(lambda: link.attempts > 0)
            assert read(client.metrics, "link_failures_total") == 1
        assert read(client.metrics, "links") == 0


async def test_a_server_that_is_full_says_so(anyio_backend: Any) -> None:
    config = NodeConfig(algorithms={"kex": ("x25519",)}, max_connections=1)
    async with Node(Identity.create(), config=config) as server, offering() as client:
        address = await server.listen("memory://full")
        await client.connect(address)
        with pytest.raises(HandshakeError):
            await client.connect(address, timeout=5)
        reason = "too many connections"
        assert read(server.metrics, "connections_refused_total", reason=reason) == 1


async def test_dropped_key_statements(anyio_backend: Any) -> None:
    async with Node(Identity.create(), config=FAST) as node:
        unknown = create_revocation(Identity.create()).encoded
        assert read(node.metrics, "key_statements_dropped_total") == 0
        node.connections.offer_statements([b"x", unknown, unknown])
        for reason, count in (("malformed", 1), ("not-on-record", 2)):
            assert read(node.metrics, "key_statements_dropped_total", reason=reason) == count


async def test_every_metric_of_the_catalogue_is_reported(
    anyio_backend: Any, tmp_path: Path
) -> None:
    journal = Journal.open(tmp_path / "journal", KEY)
    async with Node(Identity.create(), config=FAST, journal=journal) as node:
        node.bus(f"sqlite:///{tmp_path / 'bus.db'}")
        async with Federation(node, FederationSettings()):
            told = [family.measure.name for family in node.metrics.collect()]
        assert sorted(told) == sorted(CATALOGUE)
        assert len(node.metrics.collect()) == len(CATALOGUE) - 2  # it is no longer a server


async def test_metrics_can_be_read_before_the_start(anyio_backend: Any) -> None:
    node = offering()
    node.bus("sqlite:///tmp/never-opened.db")
    await node.metrics.refresh()
    assert read(node.metrics, "connections") == 0
