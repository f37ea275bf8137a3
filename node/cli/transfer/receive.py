"""`parley receive`: a node that takes files into one directory."""

from pathlib import Path
from typing import Annotated

import typer

from node.apps.transfer.receiver import PARALLEL, FileReceiver
from node.apps.transfer.store import FileStore
from node.cli.options import DEFAULT_ADDRESS, Listen, NodeOptions, takes_node_options
from node.cli.output import Output
from node.cli.run import make_node, run
from node.cli.transfer.display import Display
from node.errors import ConfigError, FileError


@takes_node_options
def receive(
    options: NodeOptions,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where files are put.")],
    listen: Listen = None,
    force: Annotated[
        bool, typer.Option("--force", help="Let a file replace another of its name.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="The same as --count 1.")] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after this many files; default: never.")
    ] = None,
    max_size: Annotated[
        int | None,
        typer.Option(min=0, help="Largest file taken, bytes; default: what the disk has room for."),
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=1, max=64, help="Files at the same time.")
    ] = PARALLEL,
) -> None:
    """Take files from `parley send` into a directory, until SIGINT or SIGTERM."""
    if once and count is not None:
        raise ConfigError("give --once or --count, not both")
    wanted = 1 if once else count

    async def receiving(options: NodeOptions, out: Output) -> None:
        display = Display(out, "<-")
        with _opened(directory, force=force, max_size=max_size) as store:
            async with make_node(options, options.listening_trust()) as node:
                receiver = FileReceiver(store, display, parallel=parallel, count=wanted)
                receiver.offer_on(node)
                addresses = [await node.listen(address) for address in listen or [DEFAULT_ADDRESS]]
                for address in addresses:
                    out.say(f"listening on {address}")
                out.event(
                    "ready",
                    node_id=str(node.node_id),
                    addresses=addresses,
                    directory=str(directory),
                )
                with display.shown():
                    await receiver.finished.wait()
        out.done(files=receiver.arrived)

    run(options, receiving, log_level="warning")


def _opened(directory: Path, *, force: bool, max_size: int | None) -> FileStore:
    try:
        return FileStore(directory, force=force, max_size=max_size)
    except OSError as error:
        raise FileError(f"cannot put files in {directory}: {error.strerror}") from error
