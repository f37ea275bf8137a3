"""`parley bus dlq`: list, replay and drop the dead letters of an event.

Without IDs, `--all` or `--group`, nothing is replayed or dropped.
"""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Final

from parley._node.bus import bus as buses
from parley._node.bus.dead_letters import DeadLetter
from parley._node.bus.identifiers import BEFORE_ALL, parse_id
from parley._node.cli.bus.connection import open_bus_at
from parley._node.cli.bus.format import publish_time
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, pluralise
from parley._node.cli.run import run
from parley._node.cli.terminal import show_stage
from parley._node.errors import ConfigError, ParleyError

AT_ONCE: Final = 1_000  # dead letters to drop in one request


def list_dead(
    options: NodeOptions,
    bus: str,
    name: str,
    group: str | None,
    count: int | None,
) -> None:
    async def listing(options: NodeOptions, out: Output) -> None:
        shown = 0
        async with open_bus_at(options, out, bus) as opened_bus:
            async for letter in _letters(opened_bus, name, group):
                _show(out, letter)
                shown += 1
                if shown == count:
                    break
        out.done(count=shown)

    run(options, listing, log_level="warning")


def replay_dead(
    options: NodeOptions,
    bus: str,
    name: str,
    ids: list[str] | None,
    every: bool,
    group: str | None,
) -> None:
    _require_choice(ids, every, group)

    async def replaying(options: NodeOptions, out: Output) -> None:
        async with open_bus_at(options, out, bus) as opened_bus:
            with show_stage(out, "replaying dead letters"):
                done = await opened_bus.replay_dead(name, ids or None, group=group)
        out.effect = f"{pluralise(len(done), 'dead letter')} replayed"
        out.print(out.effect)
        _require_all(name, ids, set(done))
        out.done(replayed=len(done))

    run(options, replaying, log_level="warning")


def drop_dead(
    options: NodeOptions,
    bus: str,
    name: str,
    ids: list[str] | None,
    every: bool,
    group: str | None,
) -> None:
    _require_choice(ids, every, group)

    async def dropping(options: NodeOptions, out: Output) -> None:
        wanted = set(ids or ())
        dropped = 0
        async with open_bus_at(options, out, bus) as opened_bus:
            letters = _letters(opened_bus, name, group)
            with show_stage(out, "dropping dead letters"):
                found = [one.id async for one in letters if not wanted or one.id in wanted]
                for start in range(0, len(found), AT_ONCE):
                    dropped += await opened_bus.drop_dead(name, found[start : start + AT_ONCE])
        out.effect = f"{pluralise(dropped, 'dead letter')} dropped"
        out.print(out.effect)
        _require_all(name, ids, set(found))
        out.done(dropped=dropped)

    run(options, dropping, log_level="warning")


def _require_choice(ids: list[str] | None, every: bool, group: str | None) -> None:
    if every and ids:
        raise ConfigError(f"cannot use --all with the id {ids[0]!r}: give ids or --all, not both")
    for id in ids or ():
        parse_id(id)
    if not ids and not every and group is None:
        raise ConfigError("cannot select dead letters: none is named; give ids, --group or --all")


def _require_all(name: str, ids: list[str] | None, done: set[str]) -> None:
    missing = sorted(set(ids or ()) - done)
    if missing:
        raise ParleyError(
            f"cannot find the dead letters {', '.join(missing)} of {name}; list all with: parley "
            f"bus dlq list BUS {name}"
        )


async def _letters(bus: buses.Bus, name: str, group: str | None) -> AsyncIterator[DeadLetter]:
    """Yield the dead letters of a group, or of all groups, oldest first, including new ones."""
    whole, place = group and bus.config.group_name(group), BEFORE_ALL
    while page := await bus.dead_letters(name, after=place):
        for letter in page:
            if whole is None or letter.group == whole:
                yield letter
        place = page[-1].id


def _show(out: Output, letter: DeadLetter) -> None:
    failures = [failure._asdict() for failure in letter.history]
    out.event(
        "dead-letter",
        **{"died_at": publish_time(letter.id), **asdict(letter), "history": failures},
    )
    out.print(f"{letter.id}  {letter.name} {letter.event_id}")
    out.print(f"  group     {letter.group}, after {pluralise(letter.attempts, 'attempt')}")
    out.print(f"  data      {letter.body}")
    for failure in letter.history:
        consumer = out.petnames.in_text(failure.consumer)
        out.print(f"  attempt {failure.attempt} by {consumer}: {failure.error}")
