"""`parley bus replay` and `parley bus trim`: reading again, and throwing away.

One rule: what is thrown away is bounded by what was typed; without a bound nothing is.
"""

from contextlib import suppress
from typing import Annotated

import typer

from node.bus.errors import BusRefusedError
from node.bus.ids import FIRST, NEW
from node.cli.amounts import parse_duration, parse_size
from node.cli.bus.arguments import Bus, Group, Name, parse_position
from node.cli.bus.looking import wanted_groups
from node.cli.bus.opening import opened
from node.cli.completing import words
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output
from node.cli.run import run
from node.cli.showing import counted
from node.errors import ConfigError

_BOUNDS = "name at least one bound: --max-length 100000, --max-age 7d, --max-bytes 1GB or --before"


@takes_node_options
def replay(
    options: NodeOptions,
    bus: Bus,
    name: Name,
    group: Group,
    start: Annotated[
        str,
        typer.Option(
            help="From where on: first, new (nothing that is there), an id, a time "
            "(2026-01-31T12:00Z), or how long ago (2h).",
            autocompletion=words(FIRST, NEW),
        ),
    ],
) -> None:
    """Have a group read an event's stream from another place on, be it back or forth."""
    position = parse_position(start)

    async def replaying(options: NodeOptions, out: Output) -> None:
        async with opened(options, out, bus) as opened_bus:
            with suppress(BusRefusedError):  # who may not look is not told
                await wanted_groups(opened_bus, name, group)
            await opened_bus.replay(name, group, position)
        out.say(f"{group} reads {name} from {start} on")
        out.done(name=name, group=group, start=start)

    run(options, replaying, log_level="warning")


@takes_node_options
def trim(
    options: NodeOptions,
    bus: Bus,
    name: Name,
    max_length: Annotated[
        int | None, typer.Option(min=0, help="Keep the newest, at most so many.")
    ] = None,
    max_age: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep what is no older, such as 7d or 12h.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="ID-OR-TIME", help="Keep what does not stand before it."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Keep the newest, at most so much, such as 500MB."),
    ] = None,
) -> None:
    """Throw the oldest events of a stream away, whether they were read or not."""
    if (max_length, max_age, before, max_bytes) == (None,) * 4:
        raise ConfigError(_BOUNDS)
    age = None if max_age is None else parse_duration(max_age)
    size = None if max_bytes is None else parse_size(max_bytes)
    first = None if before is None else parse_position(before, "--before")
    if first in (FIRST, NEW):
        raise ConfigError(f"--before {first}: an id, a time, or how long ago")

    async def trimming(options: NodeOptions, out: Output) -> None:
        async with opened(options, out, bus) as opened_bus:
            gone = await opened_bus.trim(
                name, max_length=max_length, max_age=age, before=first, max_bytes=size
            )
        out.say(f"{counted(gone, 'event')} removed")
        out.done(removed=gone)

    run(options, trimming, log_level="warning")
