"""A server with two connected peers: Alice, who stays trusted, and Eve, who doesn't."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from parley import Call, Identity, Node, Peer, PublicIdentity
from parley._node.errors import NotTrustedError
from parley._node.testing.proxy import FaultyProxy
from parley._node.transport.backend import Clock
from parley._node.trust.policies import AcceptHook, TrustPolicy
from tests.node.network import PATIENCE, config, eventually

RESUME = 20.0
ALICE, EVE = Identity.create(), Identity.create()


class Members:
    """A policy as users write it, with only the required attributes."""

    name = "members"
    allows_plaintext = False

    def __init__(self, *, reads_files: bool = False) -> None:
        self.reads_files = reads_files
        self.ids = {ALICE.node_id, EVE.node_id}
        self.checks = 0

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        self.checks += 1
        if peer.node_id not in self.ids:
            raise NotTrustedError(f"{peer.node_id} is not a member")


@dataclass(frozen=True, slots=True)
class ServerWithPeers:
    """`alice` and `eve` are the peers as they see the server; the others are the server's view of
    them.
    """

    server: Node
    eve_node: Node
    proxy: FaultyProxy
    alice: Peer
    alice_there: Peer
    eve: Peer
    eve_there: Peer

    async def suspend(self) -> None:
        self.proxy.stall()
        self.proxy.cut()
        peers = (self.alice, self.alice_there, self.eve, self.eve_there)
        await eventually(lambda: all(peer.is_suspended for peer in peers))

    async def alice_stays(self) -> None:
        """Check that Alice's session continues, even if it was suspended."""
        assert self.alice_there.is_open
        self.proxy.resume()
        if self.alice.is_suspended:
            self.alice.redial()
        assert await self.alice.call("echo", "still here") == "still here"
        assert self.server.peers == [self.alice_there]


async def echo(call: Call) -> Any:
    return call.data


@asynccontextmanager
async def server_with_peers(
    trust: TrustPolicy | AcceptHook, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[ServerWithPeers]:
    """Connect both peers, through a proxy, to a server with the policy `trust`; sessions are
    resumable.
    """
    ours = config(**{"resume": RESUME, **settings})
    server = Node(Identity.create(), config=ours, trust=trust, clock=clock)
    server.on_call("echo")(echo)
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(PATIENCE * 2))
        await stack.enter_async_context(server)
        nodes = [
            await stack.enter_async_context(Node(identity, config=ours, clock=clock))
            for identity in (ALICE, EVE)
        ]
        address = await server.listen("tcp://127.0.0.1:0")
        proxy = await stack.enter_async_context(FaultyProxy(address))
        peers = []
        for node in nodes:
            peer = await node.connect(proxy.address)
            assert await peer.call("echo", 1) == 1
            peers += [peer, next(p for p in server.peers if p.node_id == node.node_id)]
        yield ServerWithPeers(server, nodes[1], proxy, *peers)
        proxy.heal()
