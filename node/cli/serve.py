"""`parley serve`: a node that listens until it is asked to end."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
import typer

from node.cli.builtin import offer_builtin_calls
from node.cli.clock import offer_clock, tick
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output, abandon_stdout
from node.cli.run import ending_signals, make_node, run
from node.settings import load_settings
from node.settings.serve import ServeSettings

DEFAULT_ADDRESS = ServeSettings().listen[0]


@takes_node_options
def serve(
    options: NodeOptions,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help=f"tcp://host:port or unix:///path; repeatable. Default: {DEFAULT_ADDRESS}"
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with settings; variables PARLEY_NODE_... and PARLEY_SERVE_... "
            "go before it, options before both."
        ),
    ] = None,
    clock_interval: Annotated[
        float | None,
        typer.Option(help="Seconds between two notes of parley.clock, 0.001 or more. Default: 1."),
    ] = None,
) -> None:
    """Listen, answer parley.echo and parley.info, publish parley.clock, until SIGINT or SIGTERM."""
    settings = load_settings(config)
    serve_settings = replace(
        settings.serve,
        listen=tuple(listen or settings.serve.listen),
        clock_interval=settings.serve.clock_interval if clock_interval is None else clock_interval,
    )

    async def serving(options: NodeOptions, out: Output) -> None:
        async with make_node(options, options.listening_trust()) as node:
            offer_builtin_calls(node)
            clock = offer_clock(node)
            # Before anybody is told: whoever reads `ready` may send a signal at once. It
            # ends before the node drains, so that a second signal does not wait for that.
            with ending_signals() as signals:
                addresses = [await node.listen(address) for address in serve_settings.listen]
                for address in addresses:
                    out.say(f"listening on {address}")
                out.event("ready", node_id=str(node.node_id), addresses=addresses)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(tick, clock, serve_settings.clock_interval)
                    name = (await anext(signals)).name
                    tasks.cancel_scope.cancel()
        try:
            out.say(f"closed on {name}")
            out.done(signal=name)
        except BrokenPipeError:
            abandon_stdout()  # whoever read the address and left wanted no more

    run(options.over(settings), serving, log_level="warning", takes_signals=True)
