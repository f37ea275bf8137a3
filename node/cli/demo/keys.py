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
from parley._lbm.codec import Value
from parley._node.cli.ended_report import find_granting_rules
from parley._node.cli.output import Output
from parley._node.errors import (
    CallRefused,
    HandshakeError,
    IdentityEndedError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
)
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import code_name
from parley._node.remote.requests import Call
from parley._node.server.federation import Federation
from parley._node.settings import Settings
from parley._node.settings.tables import FederationSettings
from parley._node.transport.address import Address
from parley._node.trust.petnames import Petnames
from parley._node.trust.policies import AnyPeer
from parley._node.trust.words import fingerprint

PATIENCE: Final = 10.0  # seconds
ANY_PORT: Final = "tcp://127.0.0.1:0"
_WORDS: Final = 4  # shown of a fingerprint
_LOOK: Final = 0.01  # seconds


@dataclass(frozen=True)
class Stage:
    """alice's node, the servers ada and ben, and the addresses of all by name; `federation` is that
    of ada. bob's first identity is a member of it, and has a recovery key.
    """

    out: Output
    stack: AsyncExitStack
    alice: Node
    servers: dict[str, Node]
    federation: Federation
    addresses: dict[str, str]
    bob: Identity
    recovery: RecoveryKey

    def show(self, label: str, text: str) -> None:
        """Print a line, whose text may have markup."""
        self.out.console.print(f"{label:8} {text}")

    def show_answer(self, label: str, text: str, answer: Value, colour: str = "green") -> None:
        self.show(label, f"{text} -> [{colour}]{escape(repr(answer))}[/]")


async def keys_demo(out: Output) -> None:
    began = perf_counter()
    out.console.rule("[bold]Parley: keys that are stolen, and the nodes that recover")
    async with AsyncExitStack() as stack:
        stage = await _start_nodes(out, stack)
        await _stolen_key(stage)
        await _revocation(stage)
        await _conflict(stage)
    seconds = perf_counter() - began
    out.console.print(f"[bold green]Finished in {seconds:.1f} s.[/]")
    out.done(seconds=seconds)


async def _start_nodes(out: Output, stack: AsyncExitStack) -> Stage:
    """Start alice's node and the servers ada and ben, which have bob as a member."""
    bob, recovery = Identity.create_recoverable()
    nodes = {name: Node(Identity.create()) for name in ("alice", "ada", "ben")}
    for node in nodes.values():
        await stack.enter_async_context(node)
    addresses = {name: await node.listen(ANY_PORT) for name, node in nodes.items()}

    @nodes["alice"].on_call("open", allow=[bob.node_id])
    async def open_door(call: Call) -> str:
        return "opened"

    servers = {name: nodes[name] for name in ("ada", "ben")}
    members = str(bob.node_id), *(str(one.node_id) for one in servers.values())
    at_ada = FederationSettings(links=(addresses["ben"],), members=members[:1])
    at_ben = FederationSettings(members=members[:2])
    await stack.enter_async_context(Federation(servers["ben"], at_ben))
    federation = await stack.enter_async_context(Federation(servers["ada"], at_ada))
    return Stage(out, stack, nodes["alice"], servers, federation, addresses, bob, recovery)


async def _stolen_key(stage: Stage) -> None:
    """Let a thief use bob's key until bob's recovery key names a successor."""
    out, bob, ups = stage.out, stage.bob, list[Peer]()
    stage.show("bob", f"{bob.node_id}, with a recovery key that is stored elsewhere")
    out.event("bob", node_id=str(bob.node_id), words=fingerprint(bob.node_id))
    async with AsyncExitStack() as running:
        node = await _serve(running, bob, "hello, I am bob")
        address, spare = await node.listen(ANY_PORT), _place(await node.listen(ANY_PORT))
        link = await stage.stack.enter_async_context(stage.alice.link(address, also=[spare]))
        link.on_up(ups.append)
        answer = await link.call("greet", timeout=PATIENCE)
        stage.show_answer("alice", "has a link to bob: greet()", answer)
        out.event("link", answer=answer)
        await _join(stage, running, node)
        stage.show("servers", "bob's server is in a federation with ada and ben")
        out.event("member", node_id=str(bob.node_id))

    thief = await _serve(stage.stack, bob, "hello, I am bob; what is the password?")
    await thief.listen(_place(address))
    await _until(lambda: len(ups) > 1)
    answer = await link.call("greet", timeout=PATIENCE)
    _require(ups[1].node_id == bob.node_id, "the thief does not have bob's ID")
    stage.show("mallory", "has stolen bob's key, and listens in the place of bob's server")
    stage.show_answer("alice", "her link reconnects, and mallory answers: greet()", answer, "red")
    stolen = {name: await thief.connect(place) for name, place in stage.addresses.items()}
    opened = await stolen["alice"].call("open", timeout=PATIENCE)
    stage.show_answer("mallory", "calls alice in bob's name: open()", opened, "red")
    out.event("theft", node_id=str(ups[1].node_id), answer=answer, opened=opened)

    new, _ = Identity.create_recoverable()
    statement = create_succession(stage.recovery, new)
    stage.show("recovery", f"bob's recovery key names the successor {new.node_id}")
    out.event("succession", origin=str(bob.node_id), successor=str(new.node_id))
    began = perf_counter()
    node = await _serve(stage.stack, new, "hello, I am bob, with a new key", statement)
    stage.addresses["bob"] = await node.listen(spare)
    to_alice = await node.connect(stage.addresses["alice"])
    await _until(lambda: ups[-1].node_id == new.node_id)
    answer = await link.call("greet", timeout=PATIENCE)
    seconds = perf_counter() - began
    _require(ups[-1].predecessors == (bob.node_id,), "alice does not know whom the node succeeds")
    stage.show("bob", "his new node connects to alice, and presents the statement")
    stage.show_answer("alice", f"her link follows by itself in {seconds:.1f} s: greet()", answer)
    out.event("followed", node_id=str(new.node_id), answer=answer, seconds=seconds)
    await _follow(stage, node, statement)
    await _refuse_thief(stage, thief, {**stolen, "link": ups[1]}, address)
    await _grant(stage, bob.node_id, node, to_alice)


async def _join(stage: Stage, stack: AsyncExitStack, bob: Node) -> None:
    """Make a node of bob a server of the federation, with a link to ada. Wait until ada has its
    card.
    """
    members = tuple(str(server.node_id) for server in stage.servers.values())
    settings = FederationSettings(links=(stage.addresses["ada"],), members=members)
    await stack.enter_async_context(Federation(bob, settings))
    await stage.federation.ready(bob.node_id, timeout=PATIENCE)


async def _follow(stage: Stage, bob: Node, statement: Statement) -> None:
    """Connect bob's new server to ada, who passes the statement on to ben."""
    began = perf_counter()
    await bob.connect(stage.addresses["ada"])
    servers, origin = stage.servers.values(), statement.origin
    await _until(lambda: {one.successor_of(origin) for one in servers} == {statement.successor})
    seconds = perf_counter() - began
    stage.show(
        "servers",
        "ada learns the statement from bob's new server, and ben from ada: [green]followed[/]",
    )
    stage.out.event("federation", origin=str(statement.origin), seconds=seconds)


async def _refuse_thief(stage: Stage, thief: Node, sessions: dict[str, Peer], address: str) -> None:
    """Check that the thief has lost its sessions, and that each node refuses it."""
    refused = {}
    with anyio.fail_after(PATIENCE):
        ended = {name: code_name((await peer.closed()).code) for name, peer in sessions.items()}
    for name, place in stage.addresses.items():
        refused[name] = await _refusal(thief, place)
    try:
        await stage.alice.connect(_place(address), trust=AnyPeer())
    except NotTrustedError as error:
        dialled = str(error)
    else:
        raise ParleyError("alice's node accepted the thief that it dialled")
    stage.show(
        "mallory",
        "loses her sessions, and alice, ada, ben and bob refuse her: "
        f"[red]{', '.join(set(refused.values()))}[/]",
    )
    stage.out.event("thief", ended=ended, refused=refused, dialled=dialled)


async def _grant(stage: Stage, origin: NodeId, bob: Node, to_alice: Peer) -> None:
    """Ask persons before the successor gets the rights of bob's old ID."""
    ada, settings = stage.servers["ada"], FederationSettings(members=(str(origin),))
    (rule,) = find_granting_rules(
        ada.statements.table, Petnames(None), Settings(federation=settings)
    )
    _require(ada.statements.table.granted(origin) is None, "a right was granted without a person")
    try:
        await to_alice.call("open", timeout=PATIENCE)
    except CallRefused as error:
        refused = code_name(error.code)
    else:
        raise ParleyError("alice gave a right of bob's old ID to its successor without a person")
    stage.show("right", f"bob calls alice with the new key: open() -> [red]{refused}[/]")
    stage.show("asked", f"ada's operator, about {rule.place}: {rule.text}; {rule.mend}")
    for node in (stage.alice, *stage.servers.values()):
        node.statements.decide(origin, bob.node_id)
    opened = await to_alice.call("open", timeout=PATIENCE)
    words = f"[cyan]{_words(bob.node_id)}[/]"
    stage.show_answer("persons", f"compare {words} with bob, and accept: open()", opened)
    await _join(stage, stage.stack, bob)
    stage.show("servers", "bob's new server is in the federation: [green]connected[/]")
    stage.out.event(
        "right",
        refused=refused,
        question={"place": rule.place, "text": rule.text, "mend": rule.mend},
        opened=opened,
        accepted=str(bob.node_id),
    )


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
    peer = await node.connect(stage.addresses["alice"])
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
    served = await _serve(stage.stack, true, "hello, I am dave")
    address = f"{_place(await served.listen(ANY_PORT))}#{dave.node_id}"
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


async def _serve(
    stack: AsyncExitStack, identity: Identity, greeting: str, statement: Statement | None = None
) -> Node:
    """Start a node that answers `greet`, and presents the statement that names it."""
    node = await stack.enter_async_context(Node(identity))
    if statement is not None:
        node.statements.apply(statement.encoded)

    @node.on_call("greet")
    async def greet(call: Call) -> str:
        return greeting

    return node


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for a change."""
    with anyio.fail_after(PATIENCE):
        done = condition()
        while not done:
            await anyio.sleep(_LOOK)
            done = condition()


def _place(address: str) -> str:
    return str(Address.parse(address).without_node_id())


def _words(node_id: NodeId) -> str:
    return " ".join(fingerprint(node_id).split()[:_WORDS]) + " .."


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ParleyError(otherwise)
