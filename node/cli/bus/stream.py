"""`parley bus tail` and `trim`: the events that are stored, whatever the groups do with them.

Looking creates no group and acknowledges nothing. Trimming removes only what the given bounds
allow; without a bound it removes nothing.
"""

import sys
from typing import Annotated

import typer

from parley._node.bus.ids import FIRST, NEW
from parley._node.cli.bus.arguments import Bus, Name, parse_position
from parley._node.cli.bus.connection import kept_open, opened
from parley._node.cli.bus.display import described, show_event
from parley._node.cli.completion.suggestions import words
from parley._node.cli.lines import Pace
from parley._node.cli.options import NodeOptions, takes_node_options
from parley._node.cli.output import Output, counted
from parley._node.cli.run import run
from parley._node.cli.stages import during
from parley._node.cli.values import parse_duration, parse_size
from parley._node.errors import ConfigError


@takes_node_options
def tail(
    options: NodeOptions,
    bus: Bus,
    name: Name,
    start: Annotated[
        str | None,
        typer.Option(
            help="first, new, an id, a time (2026-01-31T12:00Z), or how long ago (2h). "
            "Default: first; with --follow new.",
            autocompletion=words(FIRST, NEW),
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is published.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after this many events; default: at the end.")
    ] = None,
) -> None:
    """Print the events that are stored, and with --follow those to come; takes no group."""
    position = parse_position(start or (NEW if follow else FIRST))

    async def tailing(options: NodeOptions, out: Output) -> None:
        shown, pace = 0, Pace(sys.stdout)
        async with kept_open(options, out, bus, pace) as (opened_bus, _):
            if follow:
                out.event("following", name=name)
            async for event in opened_bus.history(name, start=position, follow=follow):
                await pace.print(out.line(show_event(event), "event", **described(event)))
                shown += 1
                if shown == count:
                    break
        out.done(count=shown)

    run(options, tailing, log_level="warning", waits_on_files=True)


_BOUNDS = "name at least one bound: --max-length 100000, --max-age 7d, --max-bytes 1GB or --before"


@takes_node_options
def trim(
    options: NodeOptions,
    bus: Bus,
    name: Name,
    max_length: Annotated[
        int | None, typer.Option(min=0, help="Keep the newest, at most this many.")
    ] = None,
    max_age: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep what is not older, such as 7d or 12h.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="ID-OR-TIME", help="Keep this one and what follows it."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Keep the newest, at most this much, such as 500MB."),
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
            with during(out, "removing the oldest events"):
                gone = await opened_bus.trim(
                    name, max_length=max_length, max_age=age, before=first, max_bytes=size
                )
        out.effect = f"{counted(gone, 'event')} removed"
        out.say(out.effect)
        out.done(removed=gone)

    run(options, trimming, log_level="warning")
