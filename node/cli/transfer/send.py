"""`parley send`: files to a node that receives, going on where an earlier try was cut."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Annotated

import anyio
import typer

from node.apps.transfer.names import same_file_key
from node.apps.transfer.receiver import PER_PEER
from node.apps.transfer.retries import RETRIES, send_over_link
from node.apps.transfer.sender import Source, safe_name
from node.cli.introduction import dialling_node
from node.cli.link import kept_link
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output
from node.cli.run import run
from node.cli.transfer.display import Display
from node.errors import CallRefused, ConfigError
from node.links.link import Link


@takes_node_options
def send(
    options: NodeOptions,
    files_and_address: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE... ADDR",
            help="Files, then tcp://host:port or unix:///path, best with #NODEID after it.",
        ),
    ],
    retries: Annotated[
        int, typer.Option(min=0, max=1_000, help="Dials or tries in a row that may fail.")
    ] = RETRIES,
    parallel: Annotated[int, typer.Option(min=1, max=PER_PEER, help="Files at the same time.")] = 1,
) -> None:
    """Send files to `parley receive`; run it again to go on after a cut."""
    *names, address = files_and_address
    paths = [Path(name) for name in names]
    _require_sendable(paths, address)

    async def sending(options: NodeOptions, out: Output) -> None:
        began, display, sent = perf_counter(), Display(out, "->"), False
        with ExitStack() as opened:
            sources = [opened.enter_context(await Source.open(path)) for path in paths]
            async with (
                dialling_node(options, out, address) as node,
                kept_link(
                    node, options, out, address, display.tell, wanted=lambda: not sent
                ) as link,
            ):
                with display.shown():
                    refused = await _send_all(link, sources, display, retries, parallel)
                sent = True
        if refused:
            raise refused[0]
        size = sum(source.offer.size for source in sources)
        out.done(files=len(sources), size=size, seconds=perf_counter() - began)

    run(options, sending)


async def _send_all(
    link: Link, sources: Sequence[Source], display: Display, retries: int, parallel: int
) -> list[CallRefused]:
    """Send each; a refused one does not keep the others. Returns the refusals."""
    refused: list[CallRefused] = []
    waiting = iter(sources)
    peer = await link.ready()
    who = str(peer.node_id or peer.name)

    async def work() -> None:
        for source in waiting:
            try:
                await send_over_link(link, source, display, retries)
            except CallRefused as error:
                refused.append(error)
                display.refused(source.offer.name, who, error)

    async with anyio.create_task_group() as tasks:
        for _ in range(min(parallel, len(sources))):
            tasks.start_soon(work)
    return refused


def _require_sendable(paths: Sequence[Path], address: str) -> None:
    """Raises ConfigError for what no receiver would take, before the address is dialled."""
    if not paths:
        raise ConfigError("send wants FILE... ADDR: the files, then the address")
    if not address.startswith(("tcp://", "unix://")):
        raise ConfigError(
            f"the last argument, {address}, is not an address: tcp://host:port#NODEID"
        )
    met: dict[str, Path] = {}
    for path in paths:
        other = met.setdefault(same_file_key(safe_name(path)), path)
        if other is not path:
            raise ConfigError(f"{other} and {path} would have the same name there")
