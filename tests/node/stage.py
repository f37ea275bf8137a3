"""A process that forks processes for tests that kill them, and reports how they ended.

It has imported only the modules that the actors need, so that a fork takes milliseconds. When the
test closes its end of the pipe, all actors are killed. Run it with `python -m tests.node.stage
MODULE..`; the modules define the actors in `ROLES`.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

import anyio

# Imported by every node, on either event loop.
LOOPS: Final = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "parley._node.transport.asyncio_backend",
    "parley._node.transport.trio_backend",
)
# The maximum lifetime of an actor in seconds.
LONGEST: Final = 300.0

Role = Callable[[dict[str, Any]], Awaitable[None]]


class Stage:
    """The test's side of the stage: `with Stage(modules) as stage`.

    Each module is imported and may define `ROLES` by name. The values passed to an actor include
    its `role` and `backend`. `wrapped` changes the command to run.
    """

    def __init__(
        self, modules: Iterable[str], wrapped: Callable[[list[str]], list[str]] = list
    ) -> None:
        self._command = wrapped([sys.executable, "-m", "tests.node.stage", *modules])

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._said() == "ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def start(self, role: dict[str, Any]) -> int:
        """Fork an actor and return its process ID."""
        return self._ask({"start": role})

    def kill(self, pid: int) -> None:
        """Kill an actor with SIGKILL and wait until it is gone.

        Raises:
            AssertionError: it had ended before.
        """
        assert self._ask({"kill": pid}) == -signal.SIGKILL

    def ended(self, pid: int) -> int:
        """Wait until an actor ends, and return how it ended."""
        return self._ask({"wait": pid})

    def _ask(self, words: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return int(self._said())

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def main() -> None:
    """Fork, kill or wait for each line of input, and print the process ID or how it ended."""
    roles: dict[str, Role] = {}
    for name in (*LOOPS, *sys.argv[1:]):
        roles.update(getattr(import_module(name), "ROLES", {}))
    children: set[int] = set()
    print("ready", flush=True)
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            if "kill" in asked:
                answer = end(asked["kill"])
                children.discard(asked["kill"])
            elif "wait" in asked:
                answer = ended(asked["wait"])
                children.discard(asked["wait"])
            else:
                answer = os.fork()
                if not answer:
                    children.clear()
                    try:
                        act(asked["start"], roles)
                    finally:
                        sys.stderr.flush()
                        os._exit(1)
                children.add(answer)
            print(answer, flush=True)
    finally:
        for child in children:
            end(child)


def act(asked: dict[str, Any], roles: Mapping[str, Role]) -> None:
    """Play a role until it ends or the process is killed."""

    async def play() -> None:
        with anyio.fail_after(LONGEST):
            await roles[asked["role"]](asked)

    try:
        anyio.run(play, backend=asked["backend"])
    except BaseException:
        traceback.print_exc(file=sys.stderr)


def end(child: int) -> int:
    """Kill a child and return how it ended."""
    os.kill(child, signal.SIGKILL)  # a child that ended still has its id
    return ended(child)


def ended(child: int) -> int:
    """Return how a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
