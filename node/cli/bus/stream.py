"""`parley bus tail` and `trim`: print and delete stored events, independently of groups.

`tail` creates no group and acknowledges nothing. `trim` deletes only events beyond the given
bounds.
"""

import sys

from parley._node.bus.identifiers import FIRST, NEW
from parley._node.cli.bus.connection import open_bus_at, open_lasting_bus
from parley._node.cli.bus.format import event_fields, event_line, parse_position
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, pluralise
from parley._node.cli.param_types import parse_duration, parse_size
from parley._node.cli.run import Uvloop, run
from parley._node.cli.standard_io import PacedOutput
from parley._node.cli.terminal import show_stage
from parley._node.errors import ConfigError


def tail(
    options: NodeOptions,
    bus: str,
    name: str,
    start: str | None,
    follow: bool,
    count: int | None,
) -> None:
    position = parse_position(start or (NEW if follow else FIRST))

    async def tailing(options: NodeOptions, out: Output) -> None:
        shown, pace = 0, PacedOutput(sys.stdout)
        async with open_lasting_bus(options, out, bus, pace) as (opened_bus, _):
            if follow:
                out.event("following", name=name)
            async for event in opened_bus.history(name, start=position, follow=follow):
                await pace.print(out.line(event_line(event), "event", **event_fields(event)))
                shown += 1
                if shown == count:
                    break
        out.done(count=shown)

    run(options, tailing, log_level="warning", uvloop=Uvloop.IMPOSSIBLE)


_BOUNDS = (
    "cannot trim: no bound is given; give --max-length 100000, --max-age 7d, --max-bytes 1GB or "
    "--before"
)


def trim(
    options: NodeOptions,
    bus: str,
    name: str,
    max_length: int | None,
    max_age: str | None,
    before: str | None,
    max_bytes: str | None,
) -> None:
    if (max_length, max_age, before, max_bytes) == (None,) * 4:
        raise ConfigError(_BOUNDS)
    age = None if max_age is None else parse_duration(max_age, "--max-age")
    size = None if max_bytes is None else parse_size(max_bytes, "--max-bytes")
    first = None if before is None else parse_position(before, "--before")
    if first in (FIRST, NEW):
        raise ConfigError(
            f"invalid --before {first!r}: expected an ID, a time such as 2026-01-31T12:00Z, or "
            "an age such as 2h"
        )

    async def trimming(options: NodeOptions, out: Output) -> None:
        async with open_bus_at(options, out, bus) as opened_bus:
            with show_stage(out, "removing the oldest events"):
                gone = await opened_bus.trim(
                    name, max_length=max_length, max_age=age, before=first, max_bytes=size
                )
        out.effect = f"{pluralise(gone, 'event')} removed"
        out.print(out.effect)
        out.done(removed=gone)

    run(options, trimming, log_level="warning")
