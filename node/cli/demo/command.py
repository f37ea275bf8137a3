"""`parley demo`: a story told by nodes in two processes, in a few seconds.

Everything that is shown was done and measured in this run; with `--json` each scene is one line.
"""

from pathlib import Path
from time import perf_counter
from typing import Any, Final

import anyio
from rich.table import Table

from parley._crypto.identity import Identity
from parley._node.cli.demo import scenes
from parley._node.cli.demo.federation import federation_demo
from parley._node.cli.demo.file import content_of, send_file, shown
from parley._node.cli.demo.process import other_process
from parley._node.cli.demo.responder import respond
from parley._node.cli.demo.scenes import Stage
from parley._node.cli.demo.server import serve_demo
from parley._node.cli.log_lines import change_level, set_up_logging
from parley._node.cli.output import Output
from parley._node.cli.run import described, event_loop, until_interrupted
from parley._node.errors import ConfigError
from parley._node.node import Node
from parley._node.peer.peer import Peer

FEDERATION: Final = "federation"


def demo(
    what: str | None,
    loop: str,
    as_json: bool,
) -> None:
    """Show nodes that meet, call, publish, chat, send a file, and are not fooled; or five servers
    of a federation, in as many processes. (A file of that name is `./federation`.)"""
    set_up_logging("error")
    if what == FEDERATION:  # a server is killed, which all others tell of
        change_level("critical", access=False)
    out = Output(as_json)
    if what == FEDERATION:
        anyio.run(until_interrupted, federation_demo, out, loop, **event_loop(loop))
        return
    if what == "":
        raise ConfigError("cannot send the file '': the path is empty; leave FILE out, or name one")
    story = content_of(None if what is None else Path(what))
    anyio.run(until_interrupted, _demo, out, loop, *story, **event_loop(loop))


def demo_server(loop: str) -> None:
    """A server of the federation that the demo shows."""
    set_up_logging("error")
    change_level("critical", access=False)
    anyio.run(serve_demo, **event_loop(loop))


def demo_responder(loop: str) -> None:
    """The demo's other process."""
    set_up_logging("error")
    anyio.run(respond, **event_loop(loop))


async def _demo(out: Output, loop: str, name: str, content: Path | bytes) -> None:
    start = perf_counter()
    out.console.rule("[bold]Parley: nodes in two processes, and what is said between them")
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
        (f"file {shown(name)}", f"{sent['size']:,} bytes", sent["seconds"], _rate(sent)),
    ]
    _table(out, rows)
    changed = "; the keys changed under way" if sent["size"] else ", being empty"
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
    out.event("connected", local_node_id=str(node.node_id), seconds=handshake, **described(peer))


def _table(out: Output, rows: list[tuple[str, str, float, str]]) -> None:
    table = Table("what", "size", "time", "rate")
    for what, size, seconds, rate in rows:
        table.add_row(what, size, f"{seconds * 1e3:,.2f} ms", rate)
    out.table(table)


def _rate(sent: dict[str, Any]) -> str:
    return f"{sent['size'] / sent['seconds'] / 1e6:,.1f} MB/s" if sent["size"] else ""
