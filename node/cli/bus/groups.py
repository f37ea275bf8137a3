"""`parley bus groups` and `replay`: show consumer groups and their lag, and move them.

`groups` changes nothing, so a monitor can run it as often as needed.
"""

from contextlib import suppress
from typing import Any

import click
from rich.markup import escape

from parley._node.bus import bus as buses
from parley._node.bus.errors import BusRefusedError
from parley._node.bus.model import ConsumerInfo, GroupInfo, StreamInfo
from parley._node.cli.bus.connection import open_bus_at
from parley._node.cli.bus.format import brief_publish_time, parse_position, publish_time
from parley._node.cli.exit_codes import Exit
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import run
from parley._node.cli.terminal import show_stage, table_of
from parley._node.errors import ConfigError, ParleyError
from parley._node.logs import one_line


def groups(
    options: NodeOptions,
    bus: str,
    name: str | None,
    group: str | None,
    consumers: bool,
    most: int | None,
) -> None:
    if group is not None and name is None:
        raise ConfigError(f"cannot show the group {group!r} of all events; give NAME")
    behind: list[str] = []

    async def looking(options: NodeOptions, out: Output) -> None:
        async with open_bus_at(options, out, bus) as opened_bus:
            with show_stage(out, "counting unread events"):
                streams = [] if name is not None else await opened_bus.streams()
                if name is not None and (group is not None or most is not None):
                    found = await wanted_groups(opened_bus, name, group)
                else:
                    found = await opened_bus.groups(name)
                # Use the store, because these names already have the prefix of the bus.
                store = await opened_bus.opened()
                who = [(g, await store.consumers(g.stream, g.name)) for g in found if consumers]
        _streams(out, streams)
        behind.extend(_groups(out, found, most))
        if consumers:
            _consumers(out, who)
        out.done(groups=len(found), behind=len(behind))

    run(options, looking, log_level="warning")
    if behind:
        raise click.exceptions.Exit(Exit.FINDINGS)


async def wanted_groups(bus: buses.Bus, name: str, group: str | None) -> list[GroupInfo]:
    """Return the groups of an event, or the named one; ParleyError if it doesn't exist."""
    found = await bus.groups(name)
    if group is not None:
        whole = bus.config.group_name(group)
        found = [each for each in found if each.name == whole]
        if not found:
            raise ParleyError(
                f"cannot find the group {whole!r} of {name}; list all with: parley bus groups "
                f"BUS {name}"
            )
    if not found:
        raise ParleyError(f"cannot find a group of {name}: no group consumes this event")
    return found


def _streams(out: Output, streams: list[StreamInfo]) -> None:
    if not streams:
        return
    table = table_of("events", "event", "stored", "bytes", "first", "last")
    for each in streams:
        first, last = publish_time(each.first_id), publish_time(each.last_id)
        shown = [brief_publish_time(id) for id in (each.first_id, each.last_id)]
        out.event("stream", **each._asdict(), first_time=first, last_time=last)
        table.add_row(escape(each.name), f"{each.length:,}", f"{each.size:,}", *shown)
    out.table(table)


def _groups(out: Output, groups: list[GroupInfo], most: int | None) -> list[str]:
    """Show the groups, and return the names of groups with more than `most` unacknowledged
    events.
    """
    behind = []
    head = ("event", "group", "lag", "pending", "retried", "dead", "consumers", "read up to")
    table = table_of("groups", *head)
    for each in groups:
        # An unknown lag may be any number.
        late = most is not None and (each.lag is None or each.lag + each.pending > most)
        if late:
            behind.append(each.name)
        out.event("group", **_described(each), behind=late)
        table.add_row(
            escape(each.stream),
            escape(each.name),
            "unknown" if each.lag is None else f"{each.lag:,}",
            f"{each.pending:,}",
            f"{each.redelivered:,}",
            f"{each.dead_lettered:,}",
            f"{each.consumers:,}",
            brief_publish_time(each.last_id),
        )
    out.table(table)
    for name in behind:
        out.print(f"behind: {name} has more than {most:,} unacknowledged events")
    return behind


def _consumers(out: Output, found: list[tuple[GroupInfo, list[ConsumerInfo]]]) -> None:
    table = table_of("consumers", "event", "group", "consumer", "pending", "idle, s")
    for group, consumers in found:
        for each in consumers:
            out.event("consumer", stream=group.stream, group=group.name, **each._asdict())
            table.add_row(
                escape(group.stream),
                escape(group.name),
                escape(out.petnames.in_text(each.name)),
                f"{each.pending:,}",
                f"{each.idle:,.1f}",
            )
    out.table(table)


def _described(each: GroupInfo) -> dict[str, Any]:
    return {
        "stream": each.stream,
        "group": each.name,
        "lag": each.lag,
        "pending": each.pending,
        "redelivered": each.redelivered,
        "dead_lettered": each.dead_lettered,
        "consumers": each.consumers,
        "last_id": each.last_id,
        "last_time": publish_time(each.last_id),
    }


def replay(
    options: NodeOptions,
    bus: str,
    name: str,
    group: str,
    start: str,
) -> None:
    position = parse_position(start)

    async def replaying(options: NodeOptions, out: Output) -> None:
        async with open_bus_at(options, out, bus) as opened_bus:
            with suppress(BusRefusedError):  # without the right to inspect, skip this check
                await wanted_groups(opened_bus, name, group)
            with show_stage(out, f"moving {one_line(group)} to {start}"):
                await opened_bus.replay(name, group, position)
        out.effect = f"{group} continues {name} from {start}"
        out.print(out.effect)
        out.done(name=name, group=group, start=start)

    run(options, replaying, log_level="warning")
