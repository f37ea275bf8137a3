"""`parley serve`: a node that listens until it is asked to end."""

from math import isfinite
from typing import Annotated

import anyio
import typer

from node.cli.builtin import offer_builtin_calls
from node.cli.clock import offer_clock, tick
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output, abandon_stdout
from node.cli.run import ending_signals, make_node, run
from node.errors import ConfigError

DEFAULT_ADDRESS = "tcp://127.0.0.1:0"


@takes_node_options
def serve(
    options: NodeOptions,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help=f"tcp://host:port or unix:///path; repeatable. Default: {DEFAULT_ADDRESS}"
        ),
    ] = None,
    clock_interval: Annotated[
        float, typer.Option(min=0.001, help="Seconds between two notes of parley.clock.")
    ] = 1.0,
) -> None:
    """Listen, answer parley.echo and parley.info, publish parley.clock, until SIGINT or SIGTERM."""
    if not isfinite(clock_interval):
        raise ConfigError("--clock-interval is a number of seconds")

    async def serving(options: NodeOptions, out: Output) -> None:
        async with make_node(options, options.listening_trust()) as node:
            offer_builtin_calls(node)
            clock = offer_clock(node)
            # Before anybody is told: whoever reads `ready` may send a signal at once. It
            # ends before the node drains, so that a second signal does not wait for that.
            with ending_signals() as signals:
                addresses = [await node.listen(address) for address in listen or [DEFAULT_ADDRESS]]
                for address in addresses:
                    out.say(f"listening on {address}")
                out.event("ready", node_id=str(node.node_id), addresses=addresses)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(tick, clock, clock_interval)
                    name = (await anext(signals)).name
                    tasks.cancel_scope.cancel()
        try:
            out.say(f"closed on {name}")
            out.done(signal=name)
        except BrokenPipeError:
            abandon_stdout()  # whoever read the address and left wanted no more

    run(options, serving, log_level="warning", takes_signals=True)
