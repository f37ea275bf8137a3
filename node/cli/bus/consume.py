"""`parley bus consume`: print the events of a group, or run a command for each.

An event is acknowledged after its line was printed and flushed, or its command exited with 0.
Otherwise the event is redelivered after the command has ended.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.abc import ByteSendStream, Process

from parley._node.bus.event import BusEvent
from parley._node.cli.bus.connection import open_lasting_bus, require_connection
from parley._node.cli.bus.format import event_fields, event_line, parse_position
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, to_json_value
from parley._node.cli.param_types import parse_duration
from parley._node.cli.run import Uvloop, run
from parley._node.cli.standard_io import PacedOutput
from parley._node.errors import ConfigError

BATCH: Final = 100  # events to fetch at once when printing
LONGEST_DELAY: Final = 300.0  # maximum seconds until a failed event is redelivered


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """The options of `parley bus consume`."""

    bus: str
    name: str
    group: str
    count: int | None
    idle: str | None
    batch: int | None
    start: str
    command: str | None
    max_attempts: int
    retry_delay: str
    reclaim_after: str
    consumer: str


def consume(options: NodeOptions, given: ConsumeOptions) -> None:
    position = parse_position(given.start)
    patience = None if given.idle is None else parse_duration(given.idle, "--idle")
    delay = parse_duration(given.retry_delay, "--retry-delay")
    reclaim = parse_duration(given.reclaim_after, "--reclaim-after")
    if not reclaim:
        raise ConfigError(
            f"invalid --reclaim-after {given.reclaim_after!r}: it must be more than 0; give, for "
            "example, 60s"
        )

    async def consuming(options: NodeOptions, out: Output) -> None:
        pace, reason = PacedOutput(sys.stdout), "count"
        task = (
            _Printing(out, pace) if given.command is None else _Executing(out, given.command, delay)
        )
        async with (
            open_lasting_bus(options, out, given.bus, pace, consumer=given.consumer) as (
                opened_bus,
                link,
            ),
            opened_bus.consume(
                given.name,
                group=given.group,
                batch=given.batch or (BATCH if given.command is None else 1),
                reclaim_after=reclaim,
                max_attempts=given.max_attempts,
                start=position,
            ) as events,
        ):
            while given.count is None or task.done + task.failed < given.count:
                # Fetching the next event acknowledges the previous one.
                with anyio.move_on_after(patience) as waiting:
                    event = await anext(events)
                if waiting.cancelled_caught:
                    await require_connection(link)
                    reason = "idle"
                    break
                await task.take(event)
        out.done(acknowledged=task.done, failed=task.failed, reason=reason)

    run(options, consuming, log_level="warning", uvloop=Uvloop.IMPOSSIBLE)


class _Printing:
    def __init__(self, out: Output, pace: PacedOutput) -> None:
        self.done = self.failed = 0
        self._out = out
        self._pace = pace

    async def take(self, event: BusEvent) -> None:
        await self._pace.print(self._out.line(event_line(event), "event", **_delivered(event)))
        self.done += 1


class _Executing:
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
        said = f"the command exited with {code}"
        self._out.remark(f"{event.id} (attempt {event.attempt}): {said}")
        # Limited, because endless doubling would overflow.
        grown = min(self._delay * 2.0 ** min(event.attempt - 1, 60), LONGEST_DELAY)
        await event.nack(delay=grown, reason=said)


def _delivered(event: BusEvent) -> dict[str, Any]:
    return {**event_fields(event), "group": event.group, "attempt": event.attempt}


# Seconds between SIGTERM and SIGKILL for a cancelled command.
GRACE: Final = 5.0
# Seconds between checks whether all processes of a command have ended.
_STEP: Final = 0.02
_STDERR: Final = 2


async def execute(command: str, event: Mapping[str, Any], *, to_stderr: bool) -> int:
    """Run a command in the shell with the event as JSON on its standard input.

    Return its exit code, or 128 plus the number of the signal that ended it. Its output goes to
    standard output, or with `to_stderr` to standard error. On cancellation, all processes of its
    session are ended first.
    """
    output = _STDERR if to_stderr else None
    line = json.dumps(to_json_value(event)).encode() + b"\n"
    with anyio.CancelScope(shield=True):  # so that a started process is always ended
        process = await anyio.open_process(
            command, stdout=output, stderr=None, start_new_session=True
        )
    async with process:
        try:
            if process.stdin is not None:
                await _give(process.stdin, line)
            code = await process.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _end(process)
            raise
    return code if code >= 0 else 128 - code


async def _give(stdin: ByteSendStream, data: bytes) -> None:
    # The command may exit or close its input without reading everything.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stdin.send(data)
    with suppress(anyio.BrokenResourceError, OSError):
        await stdin.aclose()


async def _end(process: Process) -> None:
    """Send SIGTERM to the process group of `process`, and SIGKILL after `GRACE` seconds."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with anyio.move_on_after(GRACE):
            await process.wait()
            while True:  # raises ProcessLookupError when the last process has ended
                os.killpg(process.pid, 0)
                await anyio.sleep(_STEP)
        os.killpg(process.pid, signal.SIGKILL)
