"""A node with data for every part of the console, and its console on a port of this machine."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from parley import Node
from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.bus.bus import Bus
from parley._node.errors import CallRefused
from parley._node.journal.journal import Journal
from parley._node.peer.peer import Peer
from parley._node.remote.requests import Call
from parley._node.remote.stream import Stream
from parley._node.server.federation import Federation
from parley._node.settings.tables import FederationSettings
from parley._node.testing import connect_nodes
from parley._node.testing.nodes import MemoryNetwork
from parley._node.trust.known_peers import KnownPeers
from parley._node.web.console.console import Console
from parley._node.web.console.server import ServedConsole, serve_console
from tests.node.network import config, new_node

# Text that a page must show literally: markup, a script, and characters that reverse the direction.
HOSTILE: Final = "<img src=x onerror=alert(1)>"
SCRIPT: Final = "<script>document.title='owned'</script>"
LONG: Final = "a-name-without-any-end-" * 12
EDGES: Final = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 5), (5, 6))
FINDINGS: Final = (
    {
        "level": "weak",
        "subject": "journal /srv/parley",
        "text": "others may look into it",
        "mend": "chmod 700 '/srv/parley'",
    },
    {"level": "problem", "subject": HOSTILE, "text": LONG, "mend": ""},
    {"level": "ok", "subject": "clock", "text": "it goes at a steady pace", "mend": ""},
    {
        "level": "note",
        "subject": "auditors",
        "text": "one auditor can read the journal: if that key is lost, the journal is unreadable",
        "mend": "add a second auditor, and store that key elsewhere",
    },
)


@dataclass
class Busy:
    """`peers` are the node as its clients see it. `drained` is set when a user drained the node."""

    node: Node
    peers: list[Peer]
    known: KnownPeers
    console: Console
    served: ServedConsole
    drained: anyio.Event
    bus: Bus | None = None


@asynccontextmanager
async def quiet(folder: Path, peers: int = 0) -> AsyncIterator[Busy]:
    """Yield a node with so many peers and no other data."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(new_node(max_connections=1_000))
        yield await _served(stack, node, folder, None, peers)


@asynccontextmanager
async def busy(folder: Path, peers: int = 5) -> AsyncIterator[Busy]:
    """Yield a server in a federation of seven, with data for every part of the console.

    It has a journal, a bus with dead letters, calls, topics, streams, and a session through a
    tunnel.
    """
    journal = Journal.open(folder / "journal", AuditorPrivateKey.create().public)
    async with AsyncExitStack() as stack:
        nodes = [new_node() for _ in EDGES]
        nodes[0] = Node(Identity.create(), config=config(max_connections=1_000), journal=journal)
        network = await stack.enter_async_context(MemoryNetwork())
        network.add(*nodes)
        for one in nodes:
            await stack.enter_async_context(one)
        federations = []
        for number, one in enumerate(nodes):
            others = tuple(str(other.node_id) for other in nodes if other is not one)
            settings = FederationSettings(
                links=tuple(network.address(nodes[b]) for a, b in EDGES if a == number),
                members=others,
                carry=others,
                exports=("shop.*", f"region-{number}.*"),
            )
            federation = Federation(one, settings, dial=network.dial_from(one))
            federations.append(await stack.enter_async_context(federation))
        node = nodes[0]
        offer(node)
        found = await _served(stack, node, folder, federations[0], peers)
        for number, name in enumerate(
            ("hub", "west", "north", "east", "south", "far-west", "edge")
        ):
            found.known.add(nodes[number].node_id, name, datetime.now(UTC))
        found.bus = await dead_letters(node, folder)
        await federations[0].ready(*(one.node_id for one in nodes[1:]), timeout=20)
        await federations[0].reach(nodes[3].node_id)
        await federations[6].ready(nodes[0].node_id, timeout=20)
        await federations[6].reach(nodes[0].node_id)
        yield found


def offer(node: Node) -> None:
    """Register handlers and topics."""

    @node.on_call("shop.order")
    async def order(call: Call) -> str:
        await anyio.sleep(0.002)
        return "ordered"

    @node.on_call("shop.refund")
    async def refund(call: Call) -> None:
        raise CallRefused(64, "not any more")

    @node.on_call("shop.slow")
    async def slow(call: Call) -> None:
        await anyio.sleep(60)

    @node.on_stream("files.*")
    async def files(stream: Stream) -> None:
        await anyio.sleep_forever()

    node.topic("prices", slow="drop-oldest", patience=0)
    node.topic("orders", keep=100)
    node.topic(f"news.{HOSTILE}")


async def dead_letters(node: Node, folder: Path) -> Bus:
    """Create a bus with events that one group has not read, and dead letters of another."""
    bus = node.bus(f"sqlite:///{folder}/bus.db")
    for number in range(12):
        await bus.publish("shop.ordered", {"number": number, "what": HOSTILE})
    async with bus.consume("shop.ordered", "mailer") as events:
        await anext(events)
    for _ in range(3):
        try:
            async with bus.consume("shop.ordered", "billing", max_attempts=1, batch=1) as events:
                await anext(events)
                raise ValueError(f"the card was declined: {HOSTILE}")
        except ValueError:
            pass
    return bus


async def _served(
    stack: AsyncExitStack, node: Node, folder: Path, federation: Federation | None, peers: int
) -> Busy:
    known = KnownPeers(folder / "known_peers")
    drained = anyio.Event()
    console = Console(
        node,
        federation=federation,
        known_peers=known,
        findings=lambda: FINDINGS if federation else (),
        on_drain=drained.set,
    )
    served = await stack.enter_async_context(serve_console(console, "127.0.0.1:0"))
    met = []
    for number in range(peers):
        info = {"app": SCRIPT if number == 1 else "shop", "version": number}
        client = await stack.enter_async_context(new_node(info=info))
        peer, _ = await connect_nodes(client, node)
        name = {1: HOSTILE.replace(" ", "_"), 2: LONG}.get(number, f"shop-{number}")
        known.add(client.node_id, name, datetime.now(UTC))
        if federation is not None:
            peer.open_stream(f"files.{SCRIPT if number == 1 else number}")
        met.append(peer)
    return Busy(node, met, known, console, served, drained)
