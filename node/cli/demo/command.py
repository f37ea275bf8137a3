"""`parley demo`: two processes connect, call, publish, chat and transfer a file.

All numbers are measured during the run. A failed scene ends the demo with an error.
"""

import hashlib
import json
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import anyio
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.table import Table

from parley._crypto.identity import Identity
from parley._node.cli.demo import command as scenes
from parley._node.cli.demo.federation import federation_demo
from parley._node.cli.demo.keys import keys_demo
from parley._node.cli.demo.processes import (
    FILE_LABEL,
    POEM,
    PRICES,
    ROOM,
    other_process,
    respond,
    serve_demo,
)
from parley._node.cli.logging_setup import change_level, set_up_logging
from parley._node.cli.output import Output
from parley._node.cli.run import event_loop, peer_fields
from parley._node.cli.signals import run_until_interrupted
from parley._node.errors import (
    ConfigError,
    FileError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    os_reason,
)
from parley._node.logs import one_line
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
    """The nodes of the demo: alice, carol and dave in this process, bob in the other one."""

    out: Output
    address: str  # bob's address with his node ID
    alice: Node
    carol: Node
    dave: Node
    bob: Peer  # the peer of alice


async def call(stage: Stage) -> float:
    began = perf_counter()
    answer = await stage.bob.call("greet", "alice", timeout=PATIENCE)
    seconds = perf_counter() - began
    stage.out.console.print(f"call     greet('alice') -> [green]{escape(repr(answer))}[/]")
    stage.out.event("call", topic="greet", answer=answer, seconds=seconds)
    return seconds


async def streamed_answer(stage: Stage) -> None:
    async with stage.bob.call_stream("demo.poem", timeout=PATIENCE) as answer:
        items = [str(item) async for item in answer]
    _require(items == list(POEM), "the streamed response is wrong")
    text = " ".join(items)
    stage.out.console.print(f"stream   a response in {len(items)} items: [green]{text}[/]")
    stage.out.event("streamed-answer", items=items)


async def topic(stage: Stage) -> float:
    """Publish to three subscribers on three connections."""
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
    """Show a chat message with its author, the node ID that the handshake proved."""
    dave, carol = _peer_of(stage.dave), _peer_of(stage.carol)
    with anyio.fail_after(PATIENCE):
        async with dave.subscribe(ROOM) as room:
            await carol.call("demo.say", "good morning, everybody", timeout=PATIENCE)
            line = await anext(aiter(room))
    author = line.get("from") if isinstance(line, dict) else None
    text = line.get("text") if isinstance(line, dict) else None
    _require(author == stage.carol.node_id.short, "another line than carol's arrived")
    stage.out.console.print(f"chat     dave receives from {author} (carol): [green]{text}[/]")
    stage.out.event("chat", author=author, text=text)


async def wrong_id(stage: Stage) -> None:
    """Connect to a node that can't prove bob's node ID; the connection is refused."""
    async with Node(Identity.create()) as mallory:
        place = Address.parse(await mallory.listen("tcp://127.0.0.1:0"))
        expected = Address.parse(stage.address).node_id
        if expected is None:
            raise ParleyError(
                f"cannot show the impostor: bob's address {stage.address!r} has no node ID"
            )
        try:
            await stage.alice.connect(str(place.with_node_id(expected)), timeout=PATIENCE)
        except NotTrustedError as error:
            name = code_name(error.code)
        else:
            raise ParleyError(
                f"the node at {place} was accepted as {expected}, although that is not its ID"
            )
    stage.out.console.print(
        f"mallory  impersonates bob at another port: [red]rejected[/], {name} (not "
        f"{expected.short})"
    )
    stage.out.event("wrong-id", refused=True, code=name, kind="close", expected=str(expected))


async def flipped_bit(stage: Stage) -> None:
    """Flip a bit in transit; bob detects it and closes the connection with a code."""
    async with FaultyProxy(stage.address) as proxy:
        peer = await stage.alice.connect(proxy.address, timeout=PATIENCE)
        await peer.call("greet", "bob", timeout=PATIENCE)
        # Behind the frame's length and stream, in the encrypted part.
        proxy.to_server.flip(after=30)
        try:
            await peer.call("greet", "bob again", timeout=PATIENCE)
        except PeerClosedError as error:
            code = error.code
        else:
            raise ParleyError(f"{stage.address} did not detect a flipped bit")
    # The error may also be found by the seal of the first call.
    noticed = code in (CloseCode.BAD_RECORD, CloseCode.SEAL_VIOLATION)
    _require(noticed, f"the close code is {code_name(code)}")
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


PIECE = 64 * 1024


async def send_file(out: Output, peer: Peer, name: str, content: Path | bytes) -> dict[str, Any]:
    """Send the file; update the keys after one third, and rekey after two thirds."""
    size = (await anyio.Path(content).stat()).st_size if isinstance(content, Path) else len(content)
    digest, done, began = hashlib.sha256(), 0, perf_counter()
    columns = (
        TextColumn("file     {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with out.bar(*columns, kept=True) as progress:
        bar = progress.add_task(escape_name(name), total=size)
        async with anyio.create_task_group() as tasks, peer.open_stream(FILE_LABEL) as stream:
            async for piece in _pieces(content, max(1, min(PIECE, size // 16))):
                before, done = done, done + len(piece)
                digest.update(piece)
                await stream.send(piece)
                progress.update(bar, completed=done)
                if before * 3 < size <= done * 3:
                    peer.update_keys()
                    out.event("key-update", at=done)
                if before * 3 < size * 2 <= done * 3:
                    tasks.start_soon(_rekey, out, peer, done)
            await stream.send_eof()
            receipt = json.loads(b"".join([piece async for piece in stream]))
    seconds = perf_counter() - began
    if done != size:
        raise FileError(f"cannot send {name}: its size changed during the transfer")
    if receipt != {"sha256": digest.hexdigest(), "size": size}:
        raise ParleyError(
            f"{name} was altered in transit: its SHA-256 is {digest.hexdigest()}, but the "
            f"receiver's is {one_line(str(receipt.get('sha256')))[:80]}"
        )
    result = {"name": name, "size": size, "seconds": seconds, "sha256": digest.hexdigest()}
    out.console.print(f"sha256   {digest.hexdigest()} on both sides")
    out.event("file", **result, match=True)
    return result


async def _rekey(out: Output, peer: Peer, at: int) -> None:
    number = await peer.rekey()
    out.event("rekey", number=number, at=at)


async def _pieces(content: Path | bytes, size: int) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), size):
            yield content[start : start + size]
        return
    async with await anyio.open_file(content, "rb") as file:
        while piece := await file.read(size):
            yield piece


def escape_name(name: str) -> str:
    """Return a file's name escaped for rich."""
    return escape(one_line(name))


def content_of(file: Path | None) -> tuple[str, Path | bytes]:
    """Return the name and content of the file, or of the README in the source or the package
    metadata.
    """
    if file is None:
        readme = Path(__file__).parents[4] / "README.md"
        if readme.is_file():
            return readme.name, readme
        return "README.md", str(metadata("parley-node").json["description"]).encode()
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise FileError(f"cannot send '{file}': it is not a regular file")
        with file.open("rb"):
            return file.name, file
    except OSError as error:
        raise FileError(f"cannot read '{file}': {os_reason(error)}") from error


FEDERATION: Final = "federation"
KEYS: Final = "keys"


def demo(
    what: str | None,
    loop: str,
    as_json: bool,
) -> None:
    set_up_logging("error")
    # Hide the other servers' warnings about the killed server, and the conflict of two successors.
    if what in (FEDERATION, KEYS):
        change_level("critical", access=False)
    out = Output(as_json)
    if what == FEDERATION:
        anyio.run(run_until_interrupted, federation_demo, out, loop, **event_loop(loop))
        return
    if what == KEYS:
        anyio.run(run_until_interrupted, keys_demo, out, **event_loop(loop))
        return
    if what == "":
        raise ConfigError("cannot send the file '': the path is empty; leave FILE out, or name one")
    story = content_of(None if what is None else Path(what))
    anyio.run(run_until_interrupted, _demo, out, loop, *story, **event_loop(loop))


def demo_server(loop: str) -> None:
    set_up_logging("error")
    change_level("critical", access=False)
    anyio.run(serve_demo, **event_loop(loop))


def demo_responder(loop: str) -> None:
    set_up_logging("error")
    anyio.run(respond, **event_loop(loop))


async def _demo(out: Output, loop: str, name: str, content: Path | bytes) -> None:
    start = perf_counter()
    out.console.rule("[bold]Parley: two nodes in two processes, and what they send each other")
    async with (
        other_process("demo-responder", "--loop", loop) as other,
        Node(Identity.create()) as alice,
        Node(Identity.create()) as carol,
        Node(Identity.create()) as dave,
    ):
        began = perf_counter()
        address = other.address
        bob = await alice.connect(address)
        handshake = perf_counter() - began
        stage = Stage(out, address, alice, carol, dave, bob)
        _introduce(out, alice, bob, handshake)
        call_time = await scenes.call(stage)
        await scenes.streamed_answer(stage)
        topic_time = await scenes.topic(stage)
        await scenes.chat(stage)
        await scenes.wrong_id(stage)
        await scenes.flipped_bit(stage)
        sent = await send_file(out, bob, name, content)
        round_trip = await bob.ping()
        await bob.close()
    deliveries = 3 * scenes.NOTES
    rows = [
        ("handshake", "", handshake, ""),
        ("call", "", call_time, ""),
        ("round trip", "", round_trip, ""),
        ("topic", f"{deliveries:,} deliveries", topic_time, f"{deliveries / topic_time:,.0f} /s"),
        (f"file {escape_name(name)}", f"{sent['size']:,} bytes", sent["seconds"], _rate(sent)),
    ]
    _table(out, rows)
    changed = "; the keys were updated during the transfer" if sent["size"] else " (it is empty)"
    out.console.print(f"[bold green]The file arrived unchanged{changed}.[/]")
    out.done(
        seconds=perf_counter() - start,
        handshake_seconds=handshake,
        call_seconds=call_time,
        topic_seconds=topic_time,
        round_trip_seconds=round_trip,
        file=sent,
    )


def _introduce(out: Output, node: Node, peer: Peer, handshake: float) -> None:
    names = peer.suite.names() if peer.suite else {}
    out.console.print(f"alice    {node.node_id} (this process)")
    out.console.print(f"bob      {peer.node_id} (another process)")
    out.console.print("suite    " + ", ".join(f"{k} [cyan]{v}[/]" for k, v in names.items()))
    out.event("connected", local_node_id=str(node.node_id), seconds=handshake, **peer_fields(peer))


def _table(out: Output, rows: list[tuple[str, str, float, str]]) -> None:
    table = Table("what", "size", "time", "rate")
    for what, size, seconds, rate in rows:
        table.add_row(what, size, f"{seconds * 1e3:,.2f} ms", rate)
    out.table(table)


def _rate(sent: dict[str, Any]) -> str:
    return f"{sent['size'] / sent['seconds'] / 1e6:,.1f} MB/s" if sent["size"] else ""
