"""Endpoints for monitoring: metrics as text, liveness and readiness."""

import sys
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from parley._crypto.identity import Identity
from parley._node.cli.output import Output
from parley._node.cli.serve.command import serve_metrics
from parley._node.config import NodeConfig
from parley._node.errors import AddressError, ConfigError
from parley._node.node import Node
from parley._node.settings import ServeSettings
from parley._node.testing import connect_nodes
from parley._node.web.metrics import reasons_unready

FAST = NodeConfig(algorithms={"kex": ("x25519",)}, max_connections=1, drain_timeout=5)
SETTINGS = ServeSettings(metrics="127.0.0.1:0")


def said_url(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().out
    return said.removeprefix("serving metrics at ").removesuffix("/metrics\n")


async def test_metrics_are_served_before_and_after_the_node_runs(
    anyio_backend: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(Identity.create(), config=FAST)
    async with AsyncExitStack() as stack:
        await serve_metrics(stack, node, SETTINGS, Output(False))
        url = said_url(capsys)
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=url))
        assert (await client.get("/healthz")).text == "ok\n"
        ready = await client.get("/readyz")
        assert (ready.status_code, "is not listening" in ready.text) == (503, True)
        async with node, Node(Identity.create(), config=FAST) as other:
            await node.listen("memory://metered")
            assert (await client.get("/readyz")).status_code == 200
            await connect_nodes(other, node)
            text = (await client.get("/metrics")).text
            assert 'parley_connections{direction="accepted",state="open"} 1.0' in text
            assert reasons_unready(node) == ["the node has the maximum number of connections"]
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.post("/metrics")).status_code == 405
    assert not node.metrics.is_watched


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        (b"application/openmetrics-text; version=x.y", True),
        (b"application/openmetrics-text; version", True),
        (b"application/openmetrics-text;version=1.0.0;q=\xff,;;=,", True),
        (b",;=" * 2_000, False),
        (b"\xff\xfe", False),
    ],
)
async def test_a_malformed_accept_header_is_answered_and_not_logged(
    anyio_backend: Any,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    accept: bytes,
    is_openmetrics: bool,
) -> None:
    node = Node(Identity.create(), config=FAST)
    async with AsyncExitStack() as stack:
        await serve_metrics(stack, node, SETTINGS, Output(False))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=said_url(capsys)))
        answer = await client.get("/metrics", headers=[(b"accept", accept)])
    assert (answer.status_code, "parley_connections" in answer.text) == (200, True)
    assert ("openmetrics" in answer.headers["content-type"]) is is_openmetrics
    assert [record for record in caplog.records if record.name.startswith("parley")] == []


async def test_without_an_address_nothing_is_served(
    anyio_backend: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.metrics", raising=False)
    node = Node(Identity.create(), config=FAST)
    async with AsyncExitStack() as stack:
        await serve_metrics(stack, node, ServeSettings(), Output(False))
        assert not node.metrics.is_watched
    assert capsys.readouterr().out == ""


async def test_opentelemetry_import_is_detected(anyio_backend: Any) -> None:
    import opentelemetry.metrics  # noqa: F401 - the import is the test

    node = Node(Identity.create(), config=FAST)
    async with AsyncExitStack() as stack:
        await serve_metrics(stack, node, ServeSettings(), Output(False))
        assert node.metrics.is_watched
    assert node.handlers.interceptors.call_in


async def test_missing_extra_and_invalid_address_raise(
    anyio_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AddressError, match="HOST:PORT"):
        ServeSettings(metrics="unix:///tmp/x")
    monkeypatch.setitem(sys.modules, "parley._node.web.metrics", None)
    node, stack = Node(Identity.create(), config=FAST), AsyncExitStack()
    with pytest.raises(ConfigError, match=r"--metrics .* extra 'metrics'"):
        await serve_metrics(stack, node, SETTINGS, Output(False))
