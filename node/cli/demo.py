"""`parley demo`: two nodes, two processes, one encrypted connection, shown to a newcomer.

One rule: nothing is simulated; the other process is a real node behind a real socket,
and what is shown was measured on this run.
"""

import hashlib
import json
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import metadata
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import anyio
import typer
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from crypto.identity import Identity
from node.call import Call
from node.cli.exits import FileProblem, one_line
from node.cli.options import Json
from node.cli.output import Output, set_up_logging, show_value
from node.cli.run import described, until_interrupted
from node.errors import ParleyError
from node.node import Node
from node.peer import Peer
from node.stream import Stream

FILE_LABEL = "demo.file"
PIECE = 64 * 1024
START_TIMEOUT = 15.0
STOP_TIMEOUT = 5.0


def demo(
    file: Annotated[Path | None, typer.Argument(help="What to send; default: the README.")] = None,
    as_json: Json = False,
) -> None:
    """Show two nodes that meet, call, send a file and change their keys meanwhile."""
    set_up_logging("error")
    anyio.run(until_interrupted, _demo, Output(as_json), *_content(file))


def demo_responder() -> None:
    """The demo's other process: answers a call and takes files, until it is told to end."""
    set_up_logging("error")
    anyio.run(_responder)


async def _responder() -> None:
    out = Output(as_json=True)
    met = anyio.Event()
    async with Node(Identity.create()) as node:

        @node.on_call("greet")
        async def greet(call: Call) -> str:
            met.set()
            return f"hello {show_value(call.data)}, I am {node.node_id.short}"

        @node.on_stream(FILE_LABEL)
        async def take(stream: Stream) -> None:
            digest, size = hashlib.sha256(), 0
            async for piece in stream:
                digest.update(piece)
                size += len(piece)
            await stream.send(json.dumps({"sha256": digest.hexdigest(), "size": size}).encode())

        address = await node.listen("tcp://127.0.0.1:0")
        out.event("ready", node_id=str(node.node_id), addresses=[address])
        # It must not outlive the demo, however that ends.
        with anyio.fail_after(START_TIMEOUT):
            await met.wait()
        for peer in node.peers:
            await peer.closed()
    out.done()


async def _demo(out: Output, name: str, content: Path | bytes) -> None:
    start = perf_counter()
    out.console.rule("[bold]Parley: two nodes, two processes, one encrypted connection")
    async with _other_process() as address, Node(Identity.create()) as node:
        began = perf_counter()
        peer = await node.connect(address)
        handshake = perf_counter() - began
        _introduce(out, node, peer, handshake)
        began = perf_counter()
        answer = await peer.call("greet", "alice", timeout=5)
        call_time = perf_counter() - began
        out.console.print(f"call     greet('alice') -> [green]{answer!r}[/]")
        out.event("call", topic="greet", answer=answer, seconds=call_time)
        sent = await _send_file(out, peer, name, content)
        round_trip = await peer.ping()
        await peer.close()
    rows = [
        ("handshake", "", handshake),
        ("call", "", call_time),
        ("round trip", "", round_trip),
        (f"file {_shown(name)}", f"{sent['size']:,} bytes", sent["seconds"]),
    ]
    _table(out, rows, sent)
    changed = "; the keys changed under way" if sent["size"] else ", being empty"
    out.console.print(f"[bold green]The file arrived unchanged{changed}.[/]")
    out.done(
        seconds=perf_counter() - start,
        handshake_seconds=handshake,
        call_seconds=call_time,
        round_trip_seconds=round_trip,
        file=sent,
    )


async def _send_file(out: Output, peer: Peer, name: str, content: Path | bytes) -> dict[str, Any]:
    """Send it, change keys at a third of the way, rekey at two thirds."""
    size = (await anyio.Path(content).stat()).st_size if isinstance(content, Path) else len(content)
    digest, done, began = hashlib.sha256(), 0, perf_counter()
    columns = (
        TextColumn("file     {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=out.console) as progress:
        bar = progress.add_task(_shown(name), total=size)
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
        raise FileProblem(f"{name} changed its size while it was being sent")
    if receipt != {"sha256": digest.hexdigest(), "size": size}:
        raise ParleyError("the file arrived changed: the two SHA-256 differ")
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


@asynccontextmanager
async def _other_process() -> AsyncIterator[str]:
    """The responder's address; leaving ends the process."""
    # The same code as here, found in the same places: -m would look in the directory
    # where the demo is run first, or find another installation.
    code = f"import sys; sys.path[:] = {sys.path!r}; from node.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", code, "demo-responder"]
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        with _in_time(START_TIMEOUT, "start"):
            ready = json.loads(await _line(process))
        yield ready["addresses"][0]
        with _in_time(STOP_TIMEOUT, "end"):
            if await process.wait() != 0:
                raise ParleyError("the other process failed")
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@contextmanager
def _in_time(seconds: float, what: str) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise ParleyError(f"the other process did not {what} within {seconds:g} s") from error


async def _line(process: Process) -> str:
    text = ""
    if process.stdout is None:
        raise ParleyError("the other process has no output")
    async for piece in TextReceiveStream(process.stdout):
        text += piece
        if "\n" in text:
            return text
    raise ParleyError("the other process ended before it was ready")


def _introduce(out: Output, node: Node, peer: Peer, handshake: float) -> None:
    names = peer.suite.names() if peer.suite else {}
    out.console.print(f"alice    {node.node_id} (this process)")
    out.console.print(f"bob      {peer.node_id} (another process)")
    out.console.print("suite    " + ", ".join(f"{k} [cyan]{v}[/]" for k, v in names.items()))
    out.event("connected", local_node_id=str(node.node_id), seconds=handshake, **described(peer))


def _table(out: Output, rows: list[tuple[str, str, float]], sent: dict[str, Any]) -> None:
    table = Table("what", "size", "time", "rate")
    for what, size, seconds in rows:
        rate = f"{sent['size'] / seconds / 1e6:,.1f} MB/s" if size and seconds else ""
        table.add_row(what, size, f"{seconds * 1e3:,.2f} ms", rate)
    out.console.print(table)


def _shown(name: str) -> str:
    """A file's name as rich shows it unchanged."""
    return escape(one_line(name))


def _content(file: Path | None) -> tuple[str, Path | bytes]:
    """What to send: the file, or the README, which an installed package has as metadata."""
    if file is None:
        readme = Path(__file__).parents[2] / "README.md"
        if readme.is_file():
            return readme.name, readme
        return "README.md", str(metadata("parley-node").json["description"]).encode()
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise FileProblem(f"{file} is no regular file")
        with file.open("rb"):
            return file.name, file
    except OSError as error:
        raise FileProblem(f"cannot read {file}: {error.strerror}") from error
