"""`parley call`: asks a node something."""

from time import perf_counter
from typing import Annotated

import typer

from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output, show_value
from node.cli.run import dialled, run
from node.cli.suggestions import known_addresses
from node.cli.values import given_value
from node.errors import ConfigError

Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDR",
        help="tcp://host:port or unix:///path, best with #NODEID after it.",
        autocompletion=known_addresses,
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for the answer.")]


@takes_node_options
def call(
    options: NodeOptions,
    address: Address,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to call.")],
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Text; - for bytes from standard input."),
    ] = None,
    data_json: Annotated[str | None, typer.Option(help="Any value, as JSON.")] = None,
    timeout: Timeout = 30.0,
) -> None:
    """Call a topic and print its answer."""
    if not timeout > 0:  # not a number is not above 0 either
        raise ConfigError("--timeout is a number of seconds above 0")
    value = given_value(data, data_json)

    async def calling(options: NodeOptions, out: Output) -> None:
        async with dialled(options, out, address) as peer:
            start = perf_counter()
            answer = await peer.call(topic, value, timeout=timeout)
            seconds = perf_counter() - start
        out.say(show_value(answer))
        out.done(code=0, kind="result", data=answer, seconds=seconds)

    run(options, calling)
