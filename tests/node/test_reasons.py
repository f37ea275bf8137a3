"""Errors that name the reason: refused calls, closed links, missing topics and handlers."""

import socket
from pathlib import Path

import pytest

from parley import Backoff, CallRefused, CallTimeout, StreamResetError
from parley._node.testing import connected_nodes
from parley.transfer import Source, send_file
from tests.node.network import eventually, new_node

pytestmark = pytest.mark.anyio


async def test_a_call_over_a_link_that_never_came_up(anyio_backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # refused once it is closed
    async with new_node() as server, new_node() as client:
        address = f"tcp://127.0.0.1:{port}#{server.node_id}"
        async with client.link(address, pauses=Backoff(first=0.01, longest=0.02)) as link:
            await eventually(lambda: link.error is not None)
            with pytest.raises(CallTimeout) as raised:
                await link.call("echo", timeout=0.05)
            assert f"link to tcp://127.0.0.1:{port} is not connected: " in str(raised.value)
            assert str(link.error) in str(raised.value)
            with pytest.raises(CallTimeout, match="is not connected: "):
                async with link.subscribe("x", timeout=0.05):
                    pass


async def test_error_of_a_link_is_cleared_when_it_is_up(anyio_backend: str) -> None:
    async with new_node() as server, new_node() as client:
        address = f"memory://later#{server.node_id}"
        async with client.link(address, pauses=Backoff(first=0.01, longest=0.02)) as link:
            await eventually(lambda: link.error is not None)
            await server.listen("memory://later")
            await link.ready(10)
            assert link.error is None


async def test_a_topic_without_writers(anyio_backend: str) -> None:
    async with connected_nodes() as nodes:
        nodes.server.topic("news")
        address = await nodes.server.listen("memory://news")
        async with nodes.client.link(address) as link:
            for asked in (nodes.peer, link):
                with pytest.raises(
                    CallRefused, match=r"'news': .* no writers; .* writers="
                ) as raised:
                    await asked.publish("news", 1)
                assert raised.value.code == 1


async def test_a_node_that_receives_no_files(tmp_path: Path, anyio_backend: str) -> None:
    (tmp_path / "file").write_bytes(b"content")
    async with connected_nodes() as nodes:
        with (
            await Source.open(tmp_path / "file") as source,
            pytest.raises(StreamResetError, match="doesn't receive files: run `parley receive`"),
        ):
            await send_file(nodes.peer, source)


async def test_a_refusal_has_the_name_of_its_code_and_the_data(anyio_backend: str) -> None:
    async with connected_nodes() as nodes:

        @nodes.server.on_call("buy")
        async def buy(call: object) -> None:
            raise CallRefused(100, {"left": 0})

        with pytest.raises(CallRefused) as raised:
            await nodes.peer.call("buy")
        assert str(raised.value) == "refused (code 100): {'left': 0}"
        with pytest.raises(CallRefused) as raised:
            await nodes.peer.call("sell")
        assert str(raised.value) == "topic not found (code 1, topic-not-found)"
