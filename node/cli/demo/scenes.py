"""The demo's scenes: each shows one thing that a node does, and what it measured.

Every node is real and behind a real socket; a scene that does not go as told ends the demo with an
error.
"""

from dataclasses import dataclass
from time import perf_counter

import anyio
from rich.markup import escape

from parley._crypto.identity import Identity
from parley._node.cli.demo.responder import POEM, PRICES, ROOM
from parley._node.cli.output import Output
from parley._node.errors import NotTrustedError, ParleyError, PeerClosedError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import CloseCode, code_name
from parley._node.testing import FaultyProxy
from parley._node.transport.address import Address

NOTES = 1_000
PATIENCE = 10.0


@dataclass(frozen=True)
class Stage:
    """Where it plays: alice and carol and dave run here, bob in the other process."""

    out: Output
    address: str  # bob's, with his node id
    alice: Node
    carol: Node
    dave: Node
    bob: Peer  # as alice sees him


async def call(stage: Stage) -> float:
    """A call and its answer."""
    began = perf_counter()
    answer = await stage.bob.call("greet", "alice", timeout=PATIENCE)
    seconds = perf_counter() - began
    stage.out.console.print(f"call     greet('alice') -> [green]{escape(repr(answer))}[/]")
    stage.out.event("call", topic="greet", answer=answer, seconds=seconds)
    return seconds


async def streamed_answer(stage: Stage) -> None:
    """An answer that comes item by item, as it is read."""
    async with stage.bob.call_stream("demo.poem", timeout=PATIENCE) as answer:
        items = [str(item) async for item in answer]
    _require(items == list(POEM), "the streamed answer is not what it should be")
    text = " ".join(items)
    stage.out.console.print(f"stream   an answer in {len(items)} items: [green]{text}[/]")
    stage.out.event("streamed-answer", items=items)


async def topic(stage: Stage) -> float:
    """A topic with three subscribers, each over a connection of its own."""
    peers = [stage.bob, *[await node.connect(stage.address) for node in (stage.carol, stage.dave)]]
    counts: list[int] = []

    async def read(notes: Subscription) -> None:
        numbers = []
        async for note in notes:
            numbers.append(note["number"] if isinstance(note, dict) else None)
            if len(numbers) == NOTES:
                break
        _require(numbers == list(range(NOTES)), "notes are missing or out of order")
        counts.append(len(numbers))

    with anyio.fail_after(PATIENCE):
        async with (
            peers[0].subscribe(PRICES) as first,
            peers[1].subscribe(PRICES) as second,
            peers[2].subscribe(PRICES) as third,
        ):
            began = perf_counter()
            async with anyio.create_task_group() as readers:
                for notes in (first, second, third):
                    readers.start_soon(read, notes)
                await stage.bob.call("demo.publish", NOTES, timeout=PATIENCE)
            seconds = perf_counter() - began
    rate = len(counts) * NOTES / seconds
    stage.out.console.print(
        f"topic    {NOTES:,} notes to {len(counts)} subscribers, all in order: "
        f"[green]{rate:,.0f} deliveries/s[/]"
    )
    stage.out.event("topic", notes=NOTES, subscribers=len(counts), seconds=seconds)
    return seconds


async def chat(stage: Stage) -> None:
    """A line of chat and its author: bob names the id that the handshake proved."""
    dave, carol = _peer_of(stage.dave), _peer_of(stage.carol)
    with anyio.fail_after(PATIENCE):
        async with dave.subscribe(ROOM) as room:
            await carol.call("demo.say", "good morning, everybody", timeout=PATIENCE)
            line = await anext(aiter(room))
    author = line.get("from") if isinstance(line, dict) else None
    text = line.get("text") if isinstance(line, dict) else None
    _require(author == stage.carol.node_id.short, "the line is not carol's")
    stage.out.console.print(f"chat     dave reads of {author} (carol): [green]{text}[/]")
    stage.out.event("chat", author=author, text=text)


async def wrong_id(stage: Stage) -> None:
    """A third node where bob was expected: it cannot prove bob's id, and is refused."""
    async with Node(Identity.create()) as mallory:
        place = Address.parse(await mallory.listen("tcp://127.0.0.1:0"))
        expected = Address.parse(stage.address).node_id
        if expected is None:
            raise ParleyError(f"bob's address {stage.address!r} has no node id")
        try:
            await stage.alice.connect(str(place.with_node_id(expected)), timeout=PATIENCE)
        except NotTrustedError as error:
            name = code_name(error.code)
        else:
            raise ParleyError(
                f"the node at {place} was accepted as {expected}, which is not its id"
            )
    stage.out.console.print(
        f"mallory  poses as bob at another port: [red]refused[/], {name} (he is not "
        f"{expected.short})"
    )
    stage.out.event("wrong-id", refused=True, code=name, kind="close", expected=str(expected))


async def flipped_bit(stage: Stage) -> None:
    """A proxy in between that flips one bit: bob notices, and says so with the code."""
    async with FaultyProxy(stage.address) as proxy:
        peer = await stage.alice.connect(proxy.address, timeout=PATIENCE)
        await peer.call("greet", "bob", timeout=PATIENCE)
        # After the frame's length and stream: in what is encrypted.
        proxy.to_server.flip(after=30)
        try:
            await peer.call("greet", "bob again", timeout=PATIENCE)
        except PeerClosedError as error:
            code = error.code
        else:
            raise ParleyError(f"{stage.address} did not detect a flipped bit")
    # The seal of the first call may be what meets the fault.
    noticed = code in (CloseCode.BAD_RECORD, CloseCode.SEAL_VIOLATION)
    _require(noticed, f"the code is {code_name(code)}")
    stage.out.console.print(
        f"proxy    flips 1 bit of a call: [red]detected and closed[/], "
        f"{code_name(code)} (code {int(code)})"
    )
    stage.out.event(
        "flipped-bit", detected=True, code=int(code), kind="close", name=code_name(code)
    )


def _peer_of(node: Node) -> Peer:
    (peer,) = node.peers
    return peer


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ParleyError(otherwise)
