"""One of the two processes from the judge's view: commands, answers, resource usage.

Lines of ended connections may precede any answer; all are stored.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.soak.plan import Plan, Tally
from tests.soak.samples import Usage

ROOT = Path(__file__).parent.parent.parent
LONGEST_LINE = 1 << 22
# Seconds for the answer to a command: resting and leaving may take a while.
ANSWER = 90.0


class Side:
    """One of the two processes from the judge's view."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.usage = Usage(process.pid)
        self.connections: dict[int, Tally] = {}
        self.open = self.most_tasks = 0
        self._process = process
        assert process.stdout is not None
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def answer(self, kind: str) -> Tally:
        """Return the next line of this kind; lines of ended connections are stored."""
        with anyio.fail_after(ANSWER):
            while True:
                line: Tally = json.loads(await self._lines.receive_until(b"\n", LONGEST_LINE))
                if line["kind"] == kind:
                    return line
                self.connections[line["number"]] = line

    async def ask(self, command: str) -> Tally:
        """Send a command and return its answer."""
        assert self._process.stdin is not None
        await self._process.stdin.send(command.encode() + b"\n")
        return await self.answer(command)

    async def sample(self, now: float) -> None:
        """Sample the resource usage and the number of connections."""
        self.usage.sample(now)
        status = await self.ask("status")
        self.open = status["open"]
        self.most_tasks = max(self.most_tasks, status["tasks"])


@asynccontextmanager
async def running(name: str, plan: Plan, address: str = "") -> AsyncIterator[tuple[Side, Tally]]:
    """Start a process of the run, and yield it with its first line."""
    command = [sys.executable, "-m", "tests.soak.process", name, plan.serialise(), address]
    async with await anyio.open_process(
        command, stdin=subprocess.PIPE, stderr=None, cwd=ROOT
    ) as process:
        try:
            side = Side(name, process)
            yield side, await side.answer("ready")
            assert process.stdin is not None
            await process.stdin.aclose()
            with anyio.fail_after(ANSWER):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
