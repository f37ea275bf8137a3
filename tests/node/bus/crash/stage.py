"""A process that forks the ones that are killed, and ends them on request.

It has only imported what the actors need, so that a start costs milliseconds; when our end of its
pipe closes, none of them is left.
`python -m tests.node.bus.crash.stage`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

IMPORTS: Final = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "coredis",
    "node.bus.bus",
    "node.bus.redis.redis_store",
    "node.bus.sqlite.sqlite_store",
    "node.remote_bus.remote_store",
    "node.remote_bus.service",
    "node.transport.asyncio_backend",
    "node.transport.trio_backend",
    "tests.node.bus.crash.load",
    "trio",
)


class Stage:
    """The other end: `with Stage() as stage`. `wrapped` makes of the command what is run."""

    def __init__(self, wrapped: Callable[[list[str]], list[str]] = list) -> None:
        self._command = wrapped([sys.executable, "-m", "tests.node.bus.crash.stage"])

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
    from tests.node.bus.crash import actors, load

    for name in IMPORTS:
        import_module(name)
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
                        actors.act(asked["start"], {**actors.ROLES, **load.ROLES})
                    finally:
                        sys.stderr.flush()
                        os._exit(1)
                children.add(answer)
            print(answer, flush=True)
    finally:
        for child in children:
            end(child)


def end(child: int) -> int:
    """Kill a child; how it ended."""
    os.kill(child, signal.SIGKILL)  # a child that ended by itself still has its id
    return ended(child)


def ended(child: int) -> int:
    """How a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
