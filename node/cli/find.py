"""`parley find`: list the nodes announced on the local network."""

from functools import partial

import anyio

from parley._node.cli.logging_setup import set_up_logging
from parley._node.cli.output import Output
from parley._node.cli.run import event_loop
from parley._node.cli.signals import run_until_interrupted
from parley._node.cli.terminal import show_stage
from parley._node.discovery.discovery import find as search
from parley._node.logs import one_line


def find(
    seconds: float,
    interface: list[str] | None,
    as_json: bool,
) -> None:
    set_up_logging("warning")
    finding = partial(_find, Output(as_json), seconds, tuple(interface or ()))
    anyio.run(run_until_interrupted, finding, **event_loop("asyncio"))


async def _find(out: Output, seconds: float, interfaces: tuple[str, ...]) -> None:
    with show_stage(out, f"searching for {seconds:g} s"):
        nodes = await search(seconds, interfaces=interfaces)
    for node in nodes:
        kind = ["(server)"] if node.server else []
        petname = out.petnames.of(node.node_id)
        called = [] if petname is None else [f"({petname})"]
        out.print(" ".join([*node.addresses, *called, one_line(node.name), *kind]).rstrip())
        out.event(
            "node",
            node_id=str(node.node_id),
            name=node.name,
            addresses=list(node.addresses),
            server=node.server,
        )
    if not nodes:
        out.remark("no nodes found on the local network")
    out.done(count=len(nodes))
