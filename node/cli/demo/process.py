"""Starts the demo's other process and ends it.

Leaving always ends the process: first by closing its standard input, in the end by SIGKILL.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from node.errors import ParleyError

START_TIMEOUT = 15.0
STOP_TIMEOUT = 5.0


@asynccontextmanager
async def other_process(*options: str) -> AsyncIterator[str]:
    """The address of the other process's node; leaving ends the process.

    Raises:
        ParleyError: it did not start, or failed.
    """
    # The same code as here, found in the same places: -m would look in the directory
    # where the demo is run first, or find another installation.
    code = f"import sys; sys.path[:] = {sys.path!r}; from node.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", code, "demo-responder", *options]
    process = await anyio.open_process(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        with _in_time(START_TIMEOUT, "start"):
            ready = json.loads(await _line(process))
        yield ready["addresses"][0]
        if process.stdin is not None:
            await process.stdin.aclose()
        with _in_time(STOP_TIMEOUT, "end"):
            if await process.wait() != 0:
                raise ParleyError("the other process failed")
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@contextmanager
def _in_time(seconds: float, what: str) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise ParleyError(f"the other process did not {what} within {seconds:g} s") from error


async def _line(process: Process) -> str:
    text = ""
    if process.stdout is None:
        raise ParleyError("the other process has no output")
    async for piece in TextReceiveStream(process.stdout):
        text += piece
        if "\n" in text:
            return text
    raise ParleyError("the other process ended before it was ready")
