"""A link to `mdns://NODEID`: the node is found, and found again after it has moved."""

import sys
from functools import partial

import anyio
import pytest

from parley import Backoff, Call, Node
from parley._crypto.identity import Identity
from parley._node.discovery.discovery import SCHEME
from parley._node.errors import ConfigError
from parley._node.peer import addresses
from parley.discovery import announce, resolve
from tests.node.discovery.local_network import LOOPBACK
from tests.node.network import config, eventually, new_node

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
QUICK = Backoff(first=0.01, longest=0.1)


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all packets of these tests on this machine."""
    asks = partial(resolve, seconds=5, interfaces=LOOPBACK)
    monkeypatch.setitem(addresses.RESOLVERS, SCHEME, asks)


async def test_a_link_finds_its_node_and_finds_it_again_elsewhere() -> None:
    identity = Identity.create()
    ports = set()
    async with (
        new_node() as ours,
        ours.link(f"{SCHEME}://{identity.node_id}", pauses=QUICK) as link,
    ):
        for number in range(2):
            async with Node(identity, config=config(drain_timeout=0)) as theirs:

                @theirs.on_call("echo")
                async def echo(call: Call) -> object:
                    return call.data

                ports.add(await theirs.listen("tcp://127.0.0.1:0"))
                async with announce(theirs):
                    with anyio.fail_after(20):
                        peer = await link.ready()
                        assert await link.call("echo", number) == number
                    assert peer.node_id == identity.node_id
            with anyio.fail_after(20):
                await eventually(lambda: not link.is_up)
        assert link.sessions == 2
    assert len(ports) == 2


async def test_a_link_says_that_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "parley._node.discovery.mdns", raising=False)
    monkeypatch.delattr("parley._node.discovery.mdns", raising=False)
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    async with new_node() as ours, ours.link(f"{SCHEME}://{Identity.create().node_id}") as link:
        await eventually(lambda: link.error is not None)
        assert isinstance(link.error, ConfigError)
        assert "extra 'discovery'" in str(link.error)
