"""`parley call` and `parley ping`: ask a node something."""

import statistics
from time import perf_counter
from typing import Annotated

import anyio
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
        out.done(code=0, data=answer, seconds=seconds)

    run(options, calling)


@takes_node_options
def ping(
    options: NodeOptions,
    address: Address,
    count: Annotated[int, typer.Option(min=1, help="How many times.")] = 4,
    interval: Annotated[float, typer.Option(min=0.0, help="Seconds between two.")] = 0.2,
) -> None:
    """Measure the round trip to a node."""

    async def pinging(options: NodeOptions, out: Output) -> None:
        trips: list[float] = []
        async with dialled(options, out, address) as peer:
            for number in range(1, count + 1):
                if trips:
                    await anyio.sleep(interval)
                trips.append(await peer.ping())
                out.say(f"{peer.node_id or address}: {trips[-1] * 1e3:.3f} ms")
                out.event("pong", number=number, seconds=trips[-1])
        median = statistics.median(trips)
        out.say(f"{count} round trips: median {median * 1e3:.3f} ms")
        out.done(count=count, minimum=min(trips), median=median, maximum=max(trips))

    run(options, pinging)
