"""A process that forks the ones that are killed, and ends them on request.

It has only imported what the actors need, so that a start costs milliseconds; when our end of its
pipe closes, none of them is left. `python -m tests.node.stage MODULE..`, whose `ROLES` they play.
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

# What every node needs on either loop.
LOOPS: Final = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "parley._node.transport.asyncio_backend",
    "parley._node.transport.trio_backend",
)
# So long an actor goes on if nobody kills it, in seconds.
LONGEST: Final = 300.0

Role = Callable[[dict[str, Any]], Awaitable[None]]


class Stage:
    """The other end: `with Stage(modules) as stage`. Each of them is imported, and may have `ROLES`
    by name; what is told to an actor says its `role` and its `backend`. `wrapped` makes of the
    command what is run."""

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
        """Fork an actor; its process id."""
        return self._ask({"start": role})

    def kill(self, pid: int) -> None:
        """SIGKILL; it is gone when this returns.

        Raises:
            AssertionError: it had ended by itself.
        """
        assert self._ask({"kill": pid}) == -signal.SIGKILL

    def ended(self, pid: int) -> int:
        """How an actor ended by itself; waits for it."""
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
    """Fork, kill or wait for each line, and say the id or how it ended."""
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
    """Play a role until it is over, or the process is killed."""

    async def play() -> None:
        with anyio.fail_after(LONGEST):
            await roles[asked["role"]](asked)

    try:
        anyio.run(play, backend=asked["backend"])
    except BaseException:
        traceback.print_exc(file=sys.stderr)


def end(child: int) -> int:
    """Kill a child; how it ended."""
    os.kill(child, signal.SIGKILL)  # a child that ended by itself still has its id
    return ended(child)


def ended(child: int) -> int:
    """How a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
