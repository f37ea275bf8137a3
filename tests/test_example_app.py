"""The application of examples/08_in_an_app.py, as its browsers use it, also while its node is slow,
away and back again.

Browsers use it over ASGI, it uses the other node over a real socket, and no state remains when it
has ended.
"""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import from_thread, to_thread
from starlette.applications import Starlette
from starlette.testclient import TestClient

from parley import Call, Identity, Node
from tests.node.network import PATIENCE, eventually

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example as a module, as an ASGI server imports it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return import_module("08_in_an_app")


@asynccontextmanager
async def _client(app: Starlette) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser in the loop of the running application; it gets an answer when all is said."""
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://app") as client:
        with anyio.fail_after(PATIENCE):
            async with app.router.lifespan_context(app):
                yield client


async def _browse(what: Callable[[], None]) -> None:
    """Run browsers that read events as they arrive, in a separate thread."""
    with anyio.fail_after(PATIENCE):
        await to_thread.run_sync(what)


def _events(response: httpx2.Response) -> Iterator[str]:
    return (line for line in response.iter_lines() if line)


async def test_the_endpoint_calls_the_shop(anyio_backend: str, example: Any) -> None:
    identity = Identity.create()
    async with Node(Identity.create()) as shop:
        shop.on_call("price")(example.sell)
        app = example.create_app(identity, await shop.listen("tcp://127.0.0.1:0"))
        async with _client(app) as client:
            answer = await client.get("/price/tea")
            assert (answer.status_code, answer.json()) == (200, {"item": "tea", "price": 2})
            answer = await client.get("/price/gold")
            assert (answer.status_code, answer.json()) == (404, {"error": "not sold here"})
            assert [peer.node_id for peer in shop.peers] == [identity.node_id]
        assert shop.peers == []


async def test_requests_at_once_share_a_connection(anyio_backend: str, example: Any) -> None:
    async with Node(Identity.create()) as shop:
        shop.on_call("price")(example.sell)
        app = example.create_app(Identity.create(), await shop.listen("tcp://127.0.0.1:0"))
        statuses = []

        async def get(client: httpx2.AsyncClient) -> None:
            statuses.append((await client.get("/price/tea")).status_code)

        async with _client(app) as client:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(get, client)
            assert len(shop.peers) == 1
        assert statuses == [200] * 20


@pytest.mark.slow
async def test_a_slow_and_a_failing_shop_have_statuses_of_their_own(
    anyio_backend: str, example: Any
) -> None:
    async def sell(call: Call) -> None:
        if call.data == "slow":
            await anyio.sleep(60)
        raise LookupError("no such drawer")

    async with Node(Identity.create()) as shop:
        shop.on_call("price")(sell)
        app = example.create_app(Identity.create(), await shop.listen("tcp://127.0.0.1:0"))
        async with _client(app) as client:
            late = await client.get("/price/slow")
            failed = await client.get("/price/any")
    assert (late.status_code, late.json()) == (
        504,
        {"error": "the deadline passed (code 17, deadline-exceeded)"},
    )
    # Errors there are in the shop's log, and in no browser.
    assert (failed.status_code, failed.json()) == (
        502,
        {"error": "the handler failed (code 16, handler-failed)"},
    )


async def test_a_shop_that_comes_back_is_found_again(
    anyio_backend: str, example: Any, tmp_path: Path
) -> None:
    identity, place = Identity.create(), f"unix://{tmp_path}/shop"

    async def open_for_a_while(client: httpx2.AsyncClient) -> int:
        async with Node(identity) as shop:
            shop.on_call("price")(example.sell)
            topic = shop.topic("prices")
            await shop.listen(place)
            await eventually(lambda: len(topic.subscribers) == 1)
            return (await client.get("/price/tea")).status_code

    app = example.create_app(Identity.create(), f"{place}#{identity.node_id}")
    async with _client(app) as client:
        assert (await client.get("/price/tea")).status_code == 502  # it is not there yet
        for _ in range(2):
            assert await open_for_a_while(client) == 200
            assert (await client.get("/price/tea")).status_code == 502


async def test_all_browsers_share_one_subscription(anyio_backend: str, example: Any) -> None:
    async with Node(Identity.create()) as shop:
        topic = shop.topic("prices")
        app = example.create_app(Identity.create(), await shop.listen("tcp://127.0.0.1:0"))

        async def publish(browsers: int, price: int) -> None:
            await eventually(lambda: len(app.state.shop.browsers) == browsers)
            await eventually(lambda: len(topic.subscribers) == 1)
            await topic.publish({"tea": price})

        def browse() -> None:
            with TestClient(app) as client, client.stream("GET", "/prices") as one:
                assert one.headers["content-type"].startswith("text/event-stream")
                events = _events(one)
                with client.stream("GET", "/prices") as two:
                    from_thread.run(publish, 2, 1)
                    assert [next(events), next(_events(two))] == ['data: {"tea": 1}'] * 2
                from_thread.run(publish, 1, 2)  # the other has gone
                assert next(events) == 'data: {"tea": 2}'

        await _browse(browse)
        assert shop.peers == []


async def test_a_browser_that_does_not_read_holds_up_nobody(
    anyio_backend: str, example: Any
) -> None:
    async with Node(Identity.create()) as shop:
        topic = shop.topic("prices")
        app = example.create_app(Identity.create(), await shop.listen("tcp://127.0.0.1:0"))
        read: list[str] = []

        async def subscribed() -> None:
            await eventually(lambda: len(app.state.shop.browsers) == 2)
            await eventually(lambda: len(topic.subscribers) == 1)

        def browse() -> None:
            with (
                TestClient(app) as client,
                client.stream("GET", "/prices"),
                client.stream("GET", "/prices") as reader,
            ):
                from_thread.run(subscribed)
                events = _events(reader)
                for number in range(200):
                    from_thread.run(topic.publish, number)
                    read.append(next(events))

        await _browse(browse)
        assert read == [f"data: {number}" for number in range(200)]
        assert topic.dropped == 0


async def test_the_application_ends_while_a_browser_listens(
    anyio_backend: str, example: Any
) -> None:
    async with Node(Identity.create()) as shop:
        topic = shop.topic("prices")
        app = example.create_app(Identity.create(), await shop.listen("tcp://127.0.0.1:0"))
        texts: list[str] = []

        async def listen(client: httpx2.AsyncClient) -> None:
            texts.append((await client.get("/prices")).text)

        async with anyio.create_task_group() as tasks:
            async with _client(app) as client:
                tasks.start_soon(listen, client)
                await eventually(lambda: bool(app.state.shop.browsers and topic.subscribers))
                assert texts == []
            await eventually(lambda: texts == [""])  # it has come to its end
        assert app.state.shop.browsers == set()
        assert topic.subscribers == []
        assert shop.peers == []


@pytest.mark.process
@pytest.mark.parametrize("package", ["starlette", "httpx2"])
def test_a_package_that_is_missing_is_named(package: str, tmp_path: Path) -> None:
    # `httpx` too, or the test client would put up with it.
    script = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys([sys.argv[2], 'httpx']))\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(EXAMPLES / "08_in_an_app.py"), package],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("This example needs the packages starlette and httpx2: ")
    assert "Traceback" not in done.stderr
