"""`parley serve`: a node that listens until it is asked to end."""

from typing import Annotated

import typer

from node.cli.builtin import offer_builtin_calls
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output, abandon_stdout
from node.cli.run import ending_signals, make_node, run

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
) -> None:
    """Listen, and answer parley.echo and parley.info, until SIGINT or SIGTERM."""

    async def serving(options: NodeOptions, out: Output) -> None:
        async with make_node(options, options.listening_trust()) as node:
            offer_builtin_calls(node)
            # Before anybody is told: whoever reads `ready` may send a signal at once. It
            # ends before the node drains, so that a second signal does not wait for that.
            with ending_signals() as signals:
                addresses = [await node.listen(address) for address in listen or [DEFAULT_ADDRESS]]
                for address in addresses:
                    out.say(f"listening on {address}")
                out.event("ready", node_id=str(node.node_id), addresses=addresses)
                name = (await anext(signals)).name
        try:
            out.say(f"closed on {name}")
            out.done(signal=name)
        except BrokenPipeError:
            abandon_stdout()  # whoever read the address and left wanted no more

    run(options, serving, log_level="warning", takes_signals=True)
