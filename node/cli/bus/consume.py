"""`parley bus consume`: the events of a group, printed or given to a command.

An event is acknowledged once its line has been printed and flushed, or once its command has exited
with 0. Whatever ends before that leaves the event to another consumer: its command is ended first.
"""

import sys
from typing import Any, Final

import anyio

from parley._node.bus.event import BusEvent
from parley._node.cli.bus.arguments import parse_position
from parley._node.cli.bus.connection import kept_open, require_connection
from parley._node.cli.bus.display import described, show_event
from parley._node.cli.bus.execute import execute
from parley._node.cli.lines import Pace
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import run
from parley._node.cli.values import parse_duration
from parley._node.errors import ConfigError

BATCH: Final = 100  # events that are fetched at once, to be printed
LONGEST_DELAY: Final = 300.0  # seconds until what a command failed at is handed out again


def consume(
    options: NodeOptions,
    bus: str,
    name: str,
    group: str,
    count: int | None,
    idle: str | None,
    batch: int | None,
    start: str,
    command: str | None,
    max_attempts: int,
    retry_delay: str,
    reclaim_after: str,
    consumer: str,
) -> None:
    """Take the events of a group and print them, or run a command for each."""
    position = parse_position(start)
    patience = None if idle is None else parse_duration(idle)
    delay, reclaim = parse_duration(retry_delay), parse_duration(reclaim_after)
    if not reclaim:
        raise ConfigError(
            f"cannot use --reclaim-after {reclaim_after}: it must be more than 0; give, say, 60s"
        )

    async def consuming(options: NodeOptions, out: Output) -> None:
        pace, reason = Pace(sys.stdout), "count"
        task = _Printing(out, pace) if command is None else _Executing(out, command, delay)
        async with (
            kept_open(options, out, bus, pace, consumer=consumer) as (opened_bus, link),
            opened_bus.consume(
                name,
                group=group,
                batch=batch or (BATCH if command is None else 1),
                reclaim_after=reclaim,
                max_attempts=max_attempts,
                start=position,
            ) as events,
        ):
            while count is None or task.done + task.failed < count:
                # Asking for the next one acknowledges the one before.
                with anyio.move_on_after(patience) as waiting:
                    event = await anext(events)
                if waiting.cancelled_caught:
                    await require_connection(link)
                    reason = "idle"
                    break
                await task.take(event)
        out.done(acknowledged=task.done, failed=task.failed, reason=reason)

    run(options, consuming, log_level="warning", waits_on_files=True)


class _Printing:
    """Prints each event."""

    def __init__(self, out: Output, pace: Pace) -> None:
        self.done = self.failed = 0
        self._out = out
        self._pace = pace

    async def take(self, event: BusEvent) -> None:
        await self._pace.print(self._out.line(show_event(event), "event", **_delivered(event)))
        self.done += 1


class _Executing:
    """Runs a command for each event."""

    def __init__(self, out: Output, command: str, delay: float) -> None:
        self.done = self.failed = 0
        self._out = out
        self._command = command
        self._delay = delay

    async def take(self, event: BusEvent) -> None:
        facts = _delivered(event)
        code = await execute(self._command, facts, to_stderr=self._out.as_json)
        self._out.event("event", **facts, exit_code=code)
        if code == 0:
            self.done += 1
            return
        self.failed += 1
        said = f"the command ended with {code}"
        self._out.remark(f"{event.id} (attempt {event.attempt}): {said}")
        # Doubled without end it would overflow.
        grown = min(self._delay * 2.0 ** min(event.attempt - 1, 60), LONGEST_DELAY)
        await event.nack(delay=grown, reason=said)


def _delivered(event: BusEvent) -> dict[str, Any]:
    return {**described(event), "group": event.group, "attempt": event.attempt}
