"""SimProto with plain sockets at the other end: a client, and a server, of the reference.

The other side runs in a thread without code of the project.
"""

import socket
from collections.abc import Callable

import anyio
import pytest
from anyio import to_thread

from parley import CallRefused, Node, SubscribeRefused
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.gateway import SimProtoGateway
from tests.node.gateways.simproto_sides import offer
from tests.node.network import PATIENCE, new_node
from tests.reference.dialects.simproto_raw import SimProtoRaw

pytestmark = pytest.mark.anyio


async def against(
    node: Node, gateway: SimProtoGateway, talk: Callable[[SimProtoRaw], None]
) -> None:
    """Have a raw client talk to a node's gateway."""
    address = await gateway.listen("tcp://127.0.0.1:0")
    port = int(address.rpartition(":")[2])

    def run() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.settimeout(5)
            talk(SimProtoRaw(sock))

    with anyio.fail_after(PATIENCE):
        await to_thread.run_sync(run)


async def test_a_raw_client_calls(anyio_backend: str) -> None:
    def talk(raw: SimProtoRaw) -> None:
        assert raw.ask("rpc", b"echo", b"hi") == ("accepted", b"hi")
        assert raw.ask("rpc", b"echo") == ("accepted", b"")
        assert raw.ask("rpc", b"text") == ("accepted", "grüße".encode())
        for topic in (b"nobody", b"fail", b"refuse", b"items", b"\xff\xfe"):
            assert raw.ask("rpc", topic) == ("topic not found", b"")
        first = raw.send_request("rpc", b"wait")
        second = raw.send_request("rpc", b"echo", b"overtakes")
        assert first != second
        assert raw.read_response(second, "rpc") == ("accepted", b"overtakes")
        raw.send_frame("ping", 99)
        message = raw.read_frame()
        assert (message.type, message.id, message.payload) == ("pong", 99, b"")
        raw.send_request("rpc", b"echo", ident=first)  # which still waits
        assert raw.closed() == b""

    async with new_node(drain_timeout=0) as node, SimProtoGateway(node) as gateway:
        offer(node)
        await against(node, gateway, talk)


async def test_a_raw_client_subscribes(anyio_backend: str) -> None:
    async with new_node(drain_timeout=0) as node, SimProtoGateway(node) as gateway:
        news = node.topic("news")
        secret = node.topic("secret")

        @secret.on_subscribe
        async def reject(request: object) -> None:
            raise SubscribeRefused("no")

        @node.on_call("publish")
        async def publish(call: object) -> None:
            await news.publish(b"a note")

        def talk(raw: SimProtoRaw) -> None:
            assert raw.ask("unsubscribe", b"news") == ("not subscribed", b"")
            assert raw.ask("unsubscribe", b"nobody") == ("topic not found", b"")
            assert raw.ask("subscribe", b"nobody") == ("topic not found", b"")
            assert raw.ask("subscribe", b"secret", b"please") == ("rejected", b"no")
            assert raw.ask("subscribe", b"news") == ("accepted", b"")
            assert raw.ask("subscribe", b"news") == ("double subscription", b"")
            assert raw.ask("notify", b"news", b"theirs") == ("not subscribed", b"")
            for meaning in ("accepted", "not subscribed"):
                asked = raw.send_request("rpc", b"publish")
                messages = [raw.read_frame(), raw.read_frame()]
                messages.sort(key=lambda message: message.type == "request")
                assert messages[0].id == asked
                assert messages[1].payload == b"\3\4\0newsa note"
                raw.send_response(messages[1].id, "notify", meaning)
            assert raw.ask("rpc", b"publish") == ("accepted", b"")  # No further note.
            assert raw.ask("unsubscribe", b"news") == ("not subscribed", b"")
            assert raw.ask("subscribe", b"news") == ("accepted", b"")
            assert raw.ask("unsubscribe", b"news") == ("accepted", b"")

        await against(node, gateway, talk)


async def test_our_client_and_a_raw_server(anyio_backend: str) -> None:
    def serve(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(5)
            raw = SimProtoRaw(sock)
            ident, kind, topic, data = raw.read_request()
            assert (kind, topic, data) == ("rpc", b"echo", b"hi")
            raw.send_response(ident, "rpc", "accepted", b"ho")
            ident, kind, topic, _ = raw.read_request()
            raw.send_response(ident, "rpc", "topic not found")
            ident, kind, topic, data = raw.read_request()
            assert (kind, topic, data) == ("subscribe", b"secret", b"key")
            raw.send_response(ident, "subscribe", "rejected", b"no")
            ident, kind, topic, data = raw.read_request()
            assert (kind, topic, data) == ("subscribe", b"news", b"")
            raw.send_response(ident, "subscribe", "accepted", b"yes")
            assert raw.ask("notify", b"news", b"one") == ("accepted", b"")
            assert raw.ask("notify", b"other", b"two") == ("not subscribed", b"")
            assert raw.ask("rpc", b"back", b"?") == ("accepted", b"and back")
            ident, kind, topic, _ = raw.read_request()
            assert (kind, topic) == ("unsubscribe", b"news")
            raw.send_response(ident, "unsubscribe", "accepted")
            assert raw.closed() == b""

    async def ask(port: int) -> None:
        client, called = SimProtoClient(f"tcp://127.0.0.1:{port}"), anyio.Event()

        @client.registrar.on_call("back")
        async def back(call: object) -> str:
            called.set()
            return "and back"

        async with client:
            assert await client.call("echo", b"hi") == b"ho"
            with pytest.raises(CallRefused) as refused:
                await client.call("nobody")
            assert refused.value.code == 1
            with pytest.raises(SubscribeRefused) as rejected:
                await client.subscribe("secret", b"key").__aenter__()
            assert rejected.value.data == b"no"
            async with client.subscribe("news") as notes:
                assert notes.data == b"yes"
                assert await anext(aiter(notes)) == b"one"
                await called.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener, anyio.fail_after(PATIENCE):
        listener.settimeout(5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, serve, listener)
            await ask(listener.getsockname()[1])
