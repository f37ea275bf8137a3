"""`parley bus tail`: what is stored, whatever any group does with it.

One rule: looking changes nothing; no group is made, and nothing is acknowledged.
"""

import sys
from typing import Annotated

import typer

from node.bus.ids import FIRST, NEW
from node.cli.bus.arguments import Bus, Name, parse_position
from node.cli.bus.opening import opened
from node.cli.bus.showing import described, show_event
from node.cli.completing import words
from node.cli.lines import Pace
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output
from node.cli.run import run


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
        async with opened(options, out, bus) as opened_bus:
            if follow:
                out.event("following", name=name)
            async for event in opened_bus.history(name, start=position, follow=follow):
                await pace.print(out.line(show_event(event), "event", **described(event)))
                shown += 1
                if shown == count:
                    break
        out.done(count=shown)

    run(options, tailing, log_level="warning", waits_on_files=True)
