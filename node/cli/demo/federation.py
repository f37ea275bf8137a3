"""`parley demo federation`: five servers in five processes, and two clients in this one.

The servers form a ring, so that there are two paths between any two of them.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import anyio

from parley._crypto.identity import Identity, NodeId
from parley._node.cli.demo.processes import FEDERATION_ROOM, OtherProcess, other_process
from parley._node.cli.output import Output
from parley._node.errors import ParleyError, PeerClosedError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import code_name
from parley._node.remote.requests import Call
from parley._node.transport.address import Address
from parley._node.tunnels.home_server import Home

NAMES: Final = ("ada", "bob", "cleo", "dan", "eve")
PATIENCE: Final = 15.0
LINES: Final = 20  # lines of each writer
WRITERS: Final = ("bob", "cleo", "dan")
CALLERS: Final = 64
LOAD: Final = 1.5  # seconds of load; the server is killed halfway


@dataclass(frozen=True)
class Cast:
    """The servers by name, and the name for each node ID. carol's home is ada, dave's is cleo."""

    out: Output
    servers: dict[str, OtherProcess]
    names: dict[NodeId, str]
    carol: Home
    dave: Home
    daves: Node

    def id_of(self, name: str) -> NodeId:
        return next(node_id for node_id, known in self.names.items() if known == name)

    def shown(self, path: tuple[NodeId, ...]) -> str:
        return " -> ".join(self.names[one] for one in path)


async def federation_demo(out: Output, loop: str) -> None:
    began = perf_counter()
    out.console.rule("[bold]Parley: a federation of five servers, each in its own process")
    async with AsyncExitStack() as stack:
        cast = await _gather(out, loop, stack)
        await _call_across(cast)
        await _room(cast)
        await _liar(cast)
        await _killed(cast)
    out.console.print(f"[bold green]Finished in {perf_counter() - began:.1f} s.[/]")
    out.done(seconds=perf_counter() - began)


async def _gather(out: Output, loop: str, stack: AsyncExitStack) -> Cast:
    """Start and configure the servers, and log both clients in."""
    servers = await _started(loop, stack)
    carol, dave = Node(Identity.create()), Node(Identity.create())
    ids = {name: _id_of(servers[name].address) for name in NAMES}
    names = {node_id: name for name, node_id in ids.items()}
    names |= {carol.node_id: "carol", dave.node_id: "dave"}
    for number, name in enumerate(NAMES):
        following = servers[NAMES[(number + 1) % len(NAMES)]].address
        others = [str(ids[other]) for other in NAMES if other != name]
        accounts = {"ada": [str(carol.node_id)], "cleo": [str(dave.node_id)]}.get(name, "off")
        hosts_room = name == "eve"
        settings = {
            "links": [following],
            "members": others,
            "carry": others,
            "exports": [FEDERATION_ROOM, f"publish:{FEDERATION_ROOM}"] if hosts_room else [],
            "follow": [FEDERATION_ROOM],
            "accounts": accounts,
        }
        writers = [str(ids[writer]) for writer in WRITERS] if hosts_room else []
        await servers[name].send({"join": settings, "writers": writers})
    for name in NAMES:
        await servers[name].send({"await": [str(ids[other]) for other in NAMES if other != name]})
    out.console.print("ring     " + " - ".join((*NAMES, NAMES[0])) + "; no other links")
    out.event("ring", servers={name: str(ids[name]) for name in NAMES})
    await stack.enter_async_context(carol)
    await stack.enter_async_context(dave)

    @dave.on_call("greet")
    async def greet(call: Call) -> str:
        return f"hello {names[call.peer.node_id] if call.peer.node_id else '?'}, I am dave"

    carols = await stack.enter_async_context(carol.home(servers["ada"].address))
    daves = await stack.enter_async_context(dave.home(servers["cleo"].address, exports=["greet"]))
    await carols.ready(PATIENCE)
    await daves.ready(PATIENCE)
    return Cast(out, servers, names, carols, daves, dave)


async def _started(loop: str, stack: AsyncExitStack) -> dict[str, OtherProcess]:
    """Start all servers concurrently."""
    started: dict[str, OtherProcess] = {}
    over = anyio.Event()

    async def run(name: str) -> None:
        async with other_process("demo-server", "--loop", loop) as process:
            started[name] = process
            if len(started) == len(NAMES):
                there.set()
            await over.wait()

    there = anyio.Event()
    tasks = await stack.enter_async_context(anyio.create_task_group())
    stack.callback(over.set)
    for name in NAMES:
        tasks.start_soon(run, name)
    await there.wait()
    return {name: started[name] for name in NAMES}


async def _call_across(cast: Cast) -> None:
    """Make a call over three hops, or four if the cards of that path arrived first."""
    async with _reached(cast) as dave:
        began = perf_counter()
        answer = await dave.call("greet", timeout=PATIENCE)
        seconds = perf_counter() - began
        path = _path_to_dave(cast)
    cast.out.console.print(f"call     carol calls dave via {cast.shown(path)}")
    cast.out.console.print(f"         -> [green]{answer!r}[/] in {seconds * 1e3:.1f} ms")
    cast.out.event("call", path=[cast.names[one] for one in path], answer=answer, seconds=seconds)
    _require(len(path) >= 4, "the call did not take three hops")


async def _room(cast: Cast) -> None:
    """Use a topic on eve: writers at three servers and readers at two homes see the same order."""
    heard: dict[str, list[object]] = {}
    topic = f"{FEDERATION_ROOM}@{cast.id_of('eve')}"
    ready = {name: anyio.Event() for name in ("carol", "dave")}

    async def read(name: str, home: Home) -> None:
        lines = heard[name] = []
        async with home.subscribe(topic) as notes:
            ready[name].set()
            async for note in notes:
                lines.append(note)
                if len(lines) == LINES * len(WRITERS):
                    return

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, "carol", cast.carol)
            tasks.start_soon(read, "dave", cast.dave)
            for event in ready.values():
                await event.wait()
            for name in WRITERS:
                tasks.start_soon(_write, cast, name)
    _require(
        heard["carol"] == heard["dave"], "carol and dave received the lines in different orders"
    )
    count = len(heard["carol"])
    cast.out.console.print(
        f"room     at eve's; {', '.join(WRITERS)} write, carol and dave read: "
        f"[green]{count} lines, in one order[/]"
    )
    cast.out.event("room", writers=list(WRITERS), lines=count, one_order=True)


async def _write(cast: Cast, name: str) -> None:
    lines = [f"{name} {number}" for number in range(LINES)]
    await cast.servers[name].send({"write": [str(cast.id_of("eve")), lines]})


async def _liar(cast: Cast) -> None:
    """Let a server on the path flip a bit of the traffic."""
    between = ""
    try:
        async with _reached(cast) as dave:
            await dave.call("greet", timeout=PATIENCE)
            between = cast.names[_path_to_dave(cast)[1]]
            await cast.servers[between].send("lie")
            await dave.call("greet", "x" * 200, timeout=PATIENCE)
    except PeerClosedError as error:
        name = code_name(error.code)
    else:
        raise ParleyError(f"{between} flipped a bit, and the receiver did not detect it")
    cast.out.console.print(
        f"tamper   {between}, a server on the path, flips 1 bit: [red]detected by the "
        f"receiver[/], {name}"
    )
    cast.out.event("liar", server=between, detected=True, name=name)


async def _killed(cast: Cast) -> None:
    """Kill a server on the path under load; the session resumes over another path."""
    answered = failed = 0
    async with _reached(cast) as dave:
        await dave.call("greet", timeout=PATIENCE)
        between = cast.names[_path_to_dave(cast)[1]]
        end = perf_counter() + LOAD

        async def call() -> None:
            nonlocal answered, failed
            while perf_counter() < end:
                try:
                    await dave.call("greet", timeout=PATIENCE)
                    answered += 1
                except ParleyError:
                    failed += 1

        async with anyio.create_task_group() as callers:
            for _ in range(CALLERS):
                callers.start_soon(call)
            await anyio.sleep(LOAD / 3)
            before = answered
            await cast.servers[between].kill()
        _require(dave.resumes > 0 and answered > before, "the session did not resume")
        way = _path_to_dave(cast)
    cast.out.console.print(
        f"killed   {between}, during {CALLERS} concurrent calls: [green]{answered} answered, "
        f"{failed} failed[/]; continued via {cast.shown(way)}"
    )
    cast.out.event(
        "killed",
        server=between,
        answered=answered,
        failed=failed,
        path=[cast.names[one] for one in way],
    )
    _require(not failed, "a caller got an error")


@asynccontextmanager
async def _reached(cast: Cast) -> AsyncIterator[Peer]:
    """Open a session from carol to dave through his home."""
    async with await cast.carol.reach(
        cast.id_of("cleo"), cast.id_of("dave"), timeout=PATIENCE
    ) as dave:
        yield dave


def _path_to_dave(cast: Cast) -> tuple[NodeId, ...]:
    """Return the current path of carol's session, in the order that dave sees."""
    return next(peer.path for peer in cast.daves.peers if peer.path)


def _id_of(address: str) -> NodeId:
    node_id = Address.parse(address).node_id
    if node_id is None:
        raise ParleyError(f"invalid address {address!r}: it has no node ID")
    return node_id


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ParleyError(otherwise)
