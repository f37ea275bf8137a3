"""`parley serve`: a node that listens until it is asked to end."""

from typing import Annotated

import typer

from node.cli.builtin import offer_builtin_calls
from node.cli.options import Common, takes_common
from node.cli.output import Output
from node.cli.run import make_node, run, until_asked_to_end

DEFAULT_ADDRESS = "tcp://127.0.0.1:0"


@takes_common
def serve(
    common: Common,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help=f"tcp://host:port or unix:///path; repeatable. Default: {DEFAULT_ADDRESS}"
        ),
    ] = None,
) -> None:
    """Listen, and answer parley.echo and parley.info, until SIGINT or SIGTERM."""

    async def serving(common: Common, out: Output) -> None:
        async with make_node(common, common.listening_trust()) as node:
            offer_builtin_calls(node)
            addresses = [await node.listen(address) for address in listen or [DEFAULT_ADDRESS]]
            for address in addresses:
                out.say(f"listening on {address}")
            out.event("ready", node_id=str(node.node_id), addresses=addresses)
            signal = await until_asked_to_end()
            out.say(f"{signal}: closing")
        out.done(signal=signal)

    run(common, serving, log_level="warning")
