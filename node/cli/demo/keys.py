"""`parley demo keys`: keys that are stolen or lost, and the peers that notice.

All nodes are in this process and connect over TCP.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import anyio
from rich.markup import escape

from parley._crypto.identity import Identity, NodeId, RecoveryKey
from parley._crypto.statements import Statement, create_revocation, create_succession
from parley._node.cli.output import Output
from parley._node.errors import (
    HandshakeError,
    IdentityEndedError,
    ParleyError,
    PeerClosedError,
)
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import code_name
from parley._node.remote.requests import Call
from parley._node.server.federation import Federation
from parley._node.settings.tables import FederationSettings
from parley._node.transport.address import Address
from parley._node.trust.petnames import fingerprint
from parley._node.trust.policies import OneOf

PATIENCE: Final = 10.0  # seconds
ANY_PORT: Final = "tcp://127.0.0.1:0"
_WORDS: Final = 4  # shown of a fingerprint
_LOOK: Final = 0.01  # seconds


@dataclass(frozen=True)
class Stage:
    """alice's node and its address, and the first node and recovery key of bob."""

    out: Output
    stack: AsyncExitStack
    alice: Node
    address: str
    bob: Identity
    recovery: RecoveryKey

    def show(self, label: str, text: str) -> None:
        """Print a line, whose text may have markup."""
        self.out.console.print(f"{label:8} {text}")


async def keys_demo(out: Output) -> None:
    began = perf_counter()
    out.console.rule("[bold]Parley: keys that are stolen, and the nodes that recover")
    bob, recovery = Identity.create_recoverable()
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(Node(Identity.create()))

        @alice.on_call("open", allow=[bob.node_id])
        async def open_door(call: Call) -> str:
            return "opened"

        stage = Stage(out, stack, alice, await alice.listen(ANY_PORT), bob, recovery)
        await _stolen_key(stage)
        await _revocation(stage)
        await _conflict(stage)
    seconds = perf_counter() - began
    out.console.print(f"[bold green]Finished in {seconds:.1f} s.[/]")
    out.done(seconds=seconds)


async def _stolen_key(stage: Stage) -> None:
    """Let a thief use bob's key until bob's recovery key names a successor."""
    out, bob = stage.out, stage.bob
    old = await _serve(stage, bob, ANY_PORT)
    place = str(Address.parse(old.address).without_node_id())
    stage.show("bob", f"{bob.node_id}, with a recovery key that is stored elsewhere")
    out.event("bob", node_id=str(bob.node_id), words=fingerprint(bob.node_id))
    link = await stage.stack.enter_async_context(stage.alice.link(old.address))
    answer = await link.call("greet", timeout=PATIENCE)
    stage.show("alice", f"has a link to bob: greet() -> [green]{escape(repr(answer))}[/]")
    out.event("link", answer=answer)

    thief = await stage.stack.enter_async_context(Node(bob))
    stolen = await thief.connect(stage.address)
    opened = await stolen.call("open", timeout=PATIENCE)
    stage.show("mallory", f"has stolen bob's key, and calls as bob: open() -> [red]{opened!r}[/]")
    out.event("theft", answer=opened)

    new, _ = Identity.create_recoverable()
    statement = create_succession(stage.recovery, new)
    stage.show("recovery", f"bob's recovery key names the successor {new.node_id}")
    out.event("succession", origin=str(bob.node_id), successor=str(new.node_id))
    followed = anyio.Event()

    @link.on_up
    def up(peer: Peer) -> None:
        followed.set()

    began = perf_counter()
    await old.node.aclose()
    bobs = await _serve(stage, new, place, statement)
    with anyio.fail_after(PATIENCE):
        await followed.wait()
    answer = await link.call("greet", timeout=PATIENCE)
    seconds = perf_counter() - began
    peer = await link.ready(PATIENCE)
    _require(peer.predecessors == (bob.node_id,), "alice does not know whom the node succeeds")
    shown = f"[green]{escape(repr(answer))}[/]"
    stage.show("alice", f"her link follows by itself in {seconds:.1f} s: greet() -> {shown}")
    out.event("followed", node_id=str(new.node_id), answer=answer, seconds=seconds)
    await _thief_is_out(stage, thief, stolen)
    await _federation(stage, statement)
    await _right(stage, bobs.node, statement, new.node_id)


async def _thief_is_out(stage: Stage, thief: Node, stolen: Peer) -> None:
    with anyio.fail_after(PATIENCE):
        ended = code_name((await stolen.closed()).code)
    refused = await _refusal(thief, stage.address)
    stage.show(
        "mallory", f"her session ends, and she cannot reconnect: [red]rejected[/], {refused}"
    )
    stage.out.event("thief", ended=ended, refused=refused)


async def _federation(stage: Stage, statement: Statement) -> None:
    """Let a server learn the statement from another one; bob is a member of both."""
    ada, ben = Node(Identity.create()), Node(Identity.create())
    members = str(statement.origin), str(ada.node_id)
    for node in (ada, ben):
        await stage.stack.enter_async_context(node)
    there = FederationSettings(members=members)
    here = FederationSettings(links=(await ben.listen(ANY_PORT),), members=members[:1])
    began = perf_counter()
    async with Federation(ben, there), Federation(ada, here) as federation:
        await federation.ready(ben.node_id, timeout=PATIENCE)
        ada.statements.apply(statement.encoded)
        with anyio.fail_after(PATIENCE):
            await _until(lambda: ben.successor_of(statement.origin) == statement.successor)
    seconds = perf_counter() - began
    stage.show(
        "servers", "ada stores the statement, and ben learns it by their link: [green]followed[/]"
    )
    stage.out.event("federation", origin=str(statement.origin), seconds=seconds)


async def _right(stage: Stage, bob: Node, statement: Statement, successor: NodeId) -> None:
    """Connect to a node that lists bob's old ID, before and after a person accepts the new one."""
    policy = OneOf([statement.origin])
    erin = await stage.stack.enter_async_context(Node(Identity.create(), trust=policy))
    address = await erin.listen(ANY_PORT)
    erin.statements.apply(statement.encoded)
    refused = await _refusal(bob, address)
    stage.show("right", f"erin admits bob's old ID; the new one is [red]rejected[/], {refused}")
    erin.statements.decide(statement.origin, successor)
    await (await bob.connect(address)).ping()
    words = f"[cyan]{_words(successor)}[/]"
    stage.show("person", f"erin compares {words} with bob, and accepts: [green]connected[/]")
    stage.out.event("right", refused=refused, accepted=str(successor))


async def _refusal(node: Node, address: str) -> str:
    """Return the name of the code with which another node refuses a node."""
    try:
        await (await node.connect(address)).ping()
    except (HandshakeError, PeerClosedError) as error:
        return code_name(error.code)
    raise ParleyError(f"the node at {address} accepted {node.node_id}, which it should refuse")


async def _revocation(stage: Stage) -> None:
    """End the ID of a node whose revocation was made in advance."""
    carol = Identity.create()
    revocation = create_revocation(carol)
    node = await stage.stack.enter_async_context(Node(carol))
    peer = await node.connect(stage.address)
    await peer.ping()
    stage.alice.statements.apply(revocation.encoded)
    with anyio.fail_after(PATIENCE):
        ended = code_name((await peer.closed()).code)
    stage.show(
        "carol", f"a revocation that she made in advance ends her ID: [red]closed[/], {ended}"
    )
    stage.out.event("revocation", node_id=str(carol.node_id), ended=ended)


async def _conflict(stage: Stage) -> None:
    """Let two successors claim to be the same node, until a person chooses."""
    dave, recovery = Identity.create_recoverable()
    (true, _), (false, _) = Identity.create_recoverable(), Identity.create_recoverable()
    for successor in (false, true):
        statement = create_succession(recovery, successor)
        stage.alice.statements.apply(statement.encoded)
    served = await _serve(stage, true, ANY_PORT)
    address = str(Address.parse(served.address).with_node_id(dave.node_id))
    try:
        await stage.alice.connect(address)
    except IdentityEndedError as error:
        text = str(error)
    else:
        raise ParleyError("alice chose between two successors of dave")
    stage.show("dave", "his recovery key, also stolen, names two: [red]neither is trusted[/]")
    stage.alice.statements.decide(dave.node_id, true.node_id)
    peer = await stage.alice.connect(address)
    _require(peer.node_id == true.node_id, "alice reached another successor than the chosen one")
    stage.show(
        "person",
        f"alice asks dave and accepts [cyan]{_words(true.node_id)}[/]: [green]connected[/]",
    )
    stage.out.event(
        "conflict",
        node_id=str(dave.node_id),
        successors=[str(false.node_id), str(true.node_id)],
        text=text,
        accepted=str(true.node_id),
    )


@dataclass(frozen=True)
class _Served:
    node: Node
    address: str


async def _serve(
    stage: Stage, identity: Identity, place: str, statement: Statement | None = None
) -> _Served:
    """Start a node that answers `greet`, and presents the statement that names it."""
    node = await stage.stack.enter_async_context(Node(identity))
    if statement is not None:
        node.statements.apply(statement.encoded)

    @node.on_call("greet")
    async def greet(call: Call) -> str:
        return f"hello, I am {identity.node_id.short}"

    return _Served(node, await node.listen(place))


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for a change that is made in another thread."""
    done = False
    while not done:
        await anyio.sleep(_LOOK)
        done = condition()


def _words(node_id: NodeId) -> str:
    return " ".join(fingerprint(node_id).split()[:_WORDS]) + " .."


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ParleyError(otherwise)
