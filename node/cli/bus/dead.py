"""`parley bus dlq`: the events that could not be processed; shown, tried again, dropped.

One rule: without ids, `--all` or `--group` nothing is replayed or dropped.
"""

import json
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from node.cli.bus.arguments import AnyGroup, Bus, Name
from node.cli.bus.opening import opened
from node.cli.bus.showing import show_moment
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output
from node.cli.run import run
from node.cli.showing import counted
from node.errors import ConfigError, ParleyError

if TYPE_CHECKING:
    from node.bus import bus as buses
    from node.bus.event import BusEvent

app = typer.Typer(help="Dead letters: list, replay or drop them.", no_args_is_help=True)

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="IDS", help="Ids of dead letters, as list shows them."),
]
Every = Annotated[bool, typer.Option("--all", help="All dead letters of the event.")]


@takes_node_options
def list_dead(
    options: NodeOptions,
    bus: Bus,
    name: Name,
    group: AnyGroup = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Show at most so many, the oldest.")
    ] = None,
) -> None:
    """Show the dead letters of an event: which, of which group, and why."""

    async def listing(options: NodeOptions, out: Output) -> None:
        shown = 0
        async with opened(options, out, bus) as opened_bus:
            async for letter in _letters(opened_bus, name, group):
                _show(out, letter)
                shown += 1
                if shown == count:
                    break
        out.done(count=shown)

    run(options, listing, log_level="warning")


@takes_node_options
def replay_dead(
    options: NodeOptions,
    bus: Bus,
    name: Name,
    ids: Ids = None,
    every: Every = False,
    group: AnyGroup = None,
) -> None:
    """Hand dead letters to the groups in which they died once more, with attempts anew."""
    _require_choice(ids, every, group)

    async def replaying(options: NodeOptions, out: Output) -> None:
        async with opened(options, out, bus) as opened_bus:
            chosen = await _chosen(opened_bus, name, ids, group)
            done = await opened_bus.replay_dead(name, chosen)
        out.say(f"{counted(done, 'dead letter')} replayed")
        out.done(replayed=done)

    run(options, replaying, log_level="warning")


@takes_node_options
def drop_dead(
    options: NodeOptions,
    bus: Bus,
    name: Name,
    ids: Ids = None,
    every: Every = False,
    group: AnyGroup = None,
) -> None:
    """Forget dead letters; what is dropped cannot be replayed."""
    _require_choice(ids, every, group)

    async def dropping(options: NodeOptions, out: Output) -> None:
        async with opened(options, out, bus) as opened_bus:
            chosen = await _chosen(opened_bus, name, ids, group)
            done = await opened_bus.drop_dead(name, chosen)
        out.say(f"{counted(done, 'dead letter')} dropped")
        out.done(dropped=done)

    run(options, dropping, log_level="warning")


app.command("list")(list_dead)
app.command("replay")(replay_dead)
app.command("drop")(drop_dead)


def _require_choice(ids: list[str] | None, every: bool, group: str | None) -> None:
    if every and ids:
        raise ConfigError("name ids or --all, not both")
    if not ids and not every and group is None:
        raise ConfigError("name ids of dead letters, --group or --all")


async def _chosen(
    bus: "buses.Bus", name: str, ids: Iterable[str] | None, group: str | None
) -> list[str]:
    """The ids that are meant, of those that are there.

    Raises:
        ParleyError: one that was named is not.
    """
    there = [letter.id async for letter in _letters(bus, name, group)]
    if not ids:
        return there
    missing = sorted(set(ids) - set(there))
    if missing:
        raise ParleyError(f"{name} has no dead letter {', '.join(missing)}; nothing was done")
    return list(ids)


async def _letters(bus: "buses.Bus", name: str, group: str | None) -> "AsyncIterator[BusEvent]":
    async for letter in bus.dead_letters(name):
        if group is None or letter.data.get("group") in (group, bus.config.group_name(group)):
            yield letter


def _show(out: Output, letter: "BusEvent") -> None:
    facts = _facts(letter)
    out.event("dead-letter", **facts)
    out.say(f"{letter.id}  {facts['name']} {facts['event_id']}")
    out.say(f"  group     {facts['group']}, after {counted(facts['attempts'], 'attempt')}")
    out.say(f"  data      {json.dumps(facts['data'], ensure_ascii=False)}")
    for failure in facts["history"]:
        out.say(f"  attempt {failure['attempt']} by {failure['consumer']}: {failure['error']}")


def _facts(letter: "BusEvent") -> dict[str, Any]:
    """What `dead_data` of node.bus.model put there."""
    data = dict(letter.data)
    return {
        "id": letter.id,
        "died_at": show_moment(letter.published_at),
        "event_id": data.pop("id", None),
        **data,
    }
