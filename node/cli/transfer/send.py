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
from node.apps.transfer.retries import RETRIES, TransferLine, send_with_retries
from node.apps.transfer.sender import Source, safe_name
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output
from node.cli.run import described, make_node, meet, run
from node.cli.transfer.display import Display
from node.errors import CallRefused, ConfigError
from node.peer.peer import Peer
from node.trust.policies import Pinned


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
        int, typer.Option(min=0, max=1_000, help="Tries in a row after a cut, with growing pauses.")
    ] = RETRIES,
    parallel: Annotated[int, typer.Option(min=1, max=PER_PEER, help="Files at the same time.")] = 1,
) -> None:
    """Send files to `parley receive`; run it again to go on after a cut."""
    *names, address = files_and_address
    paths = [Path(name) for name in names]
    _require_sendable(paths, address)

    async def sending(options: NodeOptions, out: Output) -> None:
        began, display = perf_counter(), Display(out, "->")
        with ExitStack() as opened:
            sources = [opened.enter_context(await Source.open(path)) for path in paths]
            async with make_node(options) as node:
                first = await meet(node, address, options.dialling_trust(address))
                out.event("connected", **described(first))

                async def dial() -> Peer:
                    # Only the node that answered first may go on.
                    trust = Pinned(first.node_id) if first.node_id else None
                    return await meet(node, address, trust or options.dialling_trust(address))

                line = TransferLine(first, dial)
                with display.shown():
                    refused = await _send_all(line, sources, display, retries, parallel)
                await line.close()
        if refused:
            raise refused[0]
        size = sum(source.offer.size for source in sources)
        out.done(files=len(sources), size=size, seconds=perf_counter() - began)

    run(options, sending)


async def _send_all(
    line: TransferLine, sources: Sequence[Source], display: Display, retries: int, parallel: int
) -> list[CallRefused]:
    """Send each; a refused one does not keep the others. Returns the refusals."""
    refused: list[CallRefused] = []
    waiting = iter(sources)

    async def work() -> None:
        for source in waiting:
            try:
                await send_with_retries(line, source, display, retries)
            except CallRefused as error:
                refused.append(error)
                display.refused(source.offer.name, line.who, error)

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
