"""The command that `parley bus consume --exec` runs for an event, with all processes it starts."""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import ByteSendStream, Process

from parley._node.cli.output import plain

# Seconds between SIGTERM and SIGKILL for a command that is cancelled.
GRACE: Final = 5.0
# Seconds between two looks whether all its processes have ended.
_STEP: Final = 0.02
_STDERR: Final = 2


async def execute(command: str, event: Mapping[str, Any], *, to_stderr: bool) -> int:
    """Run a command in the shell, with the event as JSON on its standard input. Returns its exit
    code, or 128 and the number of the signal that ended it.

    Its output goes to our standard output, or with `to_stderr` to standard error. If this function
    is cancelled it ends the command and all processes of its session before it returns.
    """
    output = _STDERR if to_stderr else None
    line = json.dumps(plain(event)).encode() + b"\n"
    with anyio.CancelScope(shield=True):  # a process that has started is also ended
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
    # It may end, or close its input, without having read it all.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stdin.send(data)
    with suppress(anyio.BrokenResourceError, OSError):
        await stdin.aclose()


async def _end(process: Process) -> None:
    """End the process group that `process` leads: SIGTERM, and SIGKILL after `GRACE` seconds."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with anyio.move_on_after(GRACE):
            await process.wait()
            while True:  # ends with ProcessLookupError when the last process has ended
                os.killpg(process.pid, 0)
                await anyio.sleep(_STEP)
        os.killpg(process.pid, signal.SIGKILL)
