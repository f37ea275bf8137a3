"""Starts the demo's other processes and ends them.

Leaving always ends a process: first by closing its standard input, in the end by SIGKILL.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from parley._node.errors import ParleyError

START_TIMEOUT = 15.0
STOP_TIMEOUT = 5.0


class OtherProcess:
    """A process that runs a hidden command: `address` is that of its node, with the node id."""

    def __init__(self, process: Process) -> None:
        self.address = ""
        self._process = process
        self._text = ""
        self._killed = False
        if process.stdout is None or process.stdin is None:
            raise ParleyError(f"the other process ({process.pid}) has no input or output")
        self._out = TextReceiveStream(process.stdout)
        self._in = process.stdin

    async def line(self) -> Any:
        """The next line that it prints, as JSON."""
        while "\n" not in self._text:
            try:
                self._text += await self._out.receive()
            except anyio.EndOfStream:
                raise ParleyError(
                    f"the other process ({self._process.pid}) ended before it was ready"
                ) from None
        line, _, self._text = self._text.partition("\n")
        return json.loads(line)

    async def tell(self, what: Any) -> Any:
        """Give it a line of JSON; returns the line that it answers with."""
        await self._in.send(json.dumps(what).encode() + b"\n")
        with _in_time(START_TIMEOUT, "answer"):
            return await self.line()

    async def kill(self) -> None:
        """SIGKILL: nobody is told."""
        self._killed = True
        self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Have it end in order; ParleyError if it does not, or failed."""
        await self._in.aclose()
        with _in_time(STOP_TIMEOUT, "end"):
            if (code := await self._process.wait()) != 0 and not self._killed:
                raise ParleyError(
                    f"the other process ({self._process.pid}) failed with exit code {code}"
                )


@asynccontextmanager
async def other_process(command: str, *options: str) -> AsyncIterator[OtherProcess]:
    """A process that runs a hidden command, once its node listens; leaving ends it.

    Raises:
        ParleyError: it did not start, or failed.
    """
    # The same code as here, found in the same places: -m would look in the directory
    # where the demo is run first, or find another installation.
    code = f"import sys; sys.path[:] = {sys.path!r}; from parley._node.cli.main import main; main()"
    process = await anyio.open_process(
        [sys.executable, "-P", "-c", code, command, *options],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        other = OtherProcess(process)
        with _in_time(START_TIMEOUT, "start"):
            other.address = (await other.line())["addresses"][0]
        yield other
        await other.end()
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
