"""A command that is run for an event: the event on its standard input, its exit code the answer.

One rule: the data of an event is never part of the command line; whatever the command reads or
not, nobody waits for it after its end.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import ByteSendStream

from node.cli.output import plain

_STDERR: Final = 2


async def execute(command: str, event: Mapping[str, Any], *, to_stderr: bool) -> int:
    """Run it by the shell; returns its exit code, of one that a signal ended 128 and its number.

    What it prints goes where we print, or with `to_stderr` to standard error. Cancelled, it is
    killed.
    """
    output = _STDERR if to_stderr else None
    line = json.dumps(plain(event)).encode() + b"\n"
    async with await anyio.open_process(command, stdout=output, stderr=None) as process:
        if process.stdin is not None:
            await _give(process.stdin, line)
        code = await process.wait()
    return code if code >= 0 else 128 - code


async def _give(stdin: ByteSendStream, data: bytes) -> None:
    # It may end, or close its input, without having read it all.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stdin.send(data)
    with suppress(anyio.BrokenResourceError, OSError):
        await stdin.aclose()
