"""Tests of applications with pytest plugins, as in docs/guides/test-your-application.md.

pytest-asyncio enters a fixture in one task and exits it in another.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
HOWTO = (ROOT / "docs" / "guides" / "test-your-application.md").read_text("utf-8")

ALL = """
import pytest_asyncio
from uuid import uuid4
from parley import Identity, Node
from parley.bus import open_bus
from parley.console import Console, serve_console
from parley.dialects import Relay, RelayClient
from parley.testing import FaultyLink, FaultyProxy, MemoryNetwork, connected_nodes
import httpx2
import pytest

SCOPE = {scope!r}
fixture = pytest_asyncio.fixture(scope=SCOPE, loop_scope=SCOPE)
pytestmark = pytest.mark.asyncio(loop_scope=SCOPE)


@fixture
async def node():
    async with Node(Identity.create()) as node:
        yield node

@fixture
async def bus(tmp_path_factory):
    async with open_bus(f"sqlite:///{{tmp_path_factory.mktemp('bus')}}/bus.db") as bus:
        yield bus

@fixture
async def relay():
    async with Relay() as relay:
        yield relay

@fixture
async def clients(relay):
    address = await relay.listen("tcp://127.0.0.1:0")
    async with RelayClient(address) as one, RelayClient(address) as two:
        yield one, two

@fixture
async def link():
    link = FaultyLink()
    async with connected_nodes(link=link) as pair:
        yield link, pair

@fixture
async def proxy(node):
    async with FaultyProxy(await node.listen("tcp://127.0.0.1:0")) as proxy:
        yield proxy

@fixture
async def network():
    async with MemoryNetwork() as network:
        yield network

@fixture
async def console(node):
    async with serve_console(Console(node), "127.0.0.1:0") as served:
        yield served


@pytest.mark.parametrize("again", [1, 2])
async def test_bus(bus, again):
    await bus.publish("shop.ordered", {{"n": again}})
    async with bus.consume("shop.ordered", f"group{{again}}") as events:
        assert (await anext(events)).data["n"] in (1, again)

@pytest.mark.parametrize("again", [1, 2])
async def test_link(link, again):
    link, pair = link
    await pair.peer.ping()
    link.delay(0.001)
    await pair.peer.ping()

@pytest.mark.parametrize("again", [1, 2])
async def test_proxy(proxy, again):
    async with Node(Identity.create()) as other:
        await (await other.connect(proxy.address)).ping()

async def test_relay(clients):
    one, two = clients
    assert one.uuid != two.uuid

async def test_network(network, node):
    async with Node(Identity.create()) as other:
        network.add(node, other)
        await (await network.dial_from(other)(network.address(node))).ping()

async def test_console(console):
    async with httpx2.AsyncClient(timeout=20) as client:
        assert (await client.get(console.url)).status_code in (200, 303, 401, 403)
"""


def run(directory: Path, source: str, mode: str = "auto") -> "subprocess.CompletedProcess[str]":
    """Run pytest with both plugins on a test module; `mode` is pytest-asyncio's."""
    (directory / "test_it.py").write_text(source, "utf-8")
    (directory / "pytest.ini").write_text(
        "[pytest]\n"
        "filterwarnings = error\n"
        f"asyncio_mode = {mode}\n"
        "asyncio_default_fixture_loop_scope = function\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=50,
    )


def programs() -> list[str]:
    """Return the programs on the page that use pytest."""
    found = re.findall(r"^```python\n(.*?)^```$", HOWTO, re.DOTALL | re.MULTILINE)
    return [program for program in found if "import pytest" in program]


@pytest.mark.parametrize(("number", "mode"), [(0, "strict"), (1, "auto")])
def test_the_programs_of_the_page(tmp_path: Path, number: int, mode: str) -> None:
    done = run(tmp_path, programs()[number], mode)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "1 passed" in done.stdout
    assert len(programs()) == 2


@pytest.mark.parametrize("scope", ["function", "module"])
def test_everything_that_is_entered(tmp_path: Path, scope: str) -> None:
    done = run(tmp_path, ALL.format(scope=scope))
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "9 passed" in done.stdout
