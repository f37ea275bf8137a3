"""`--reload`: runs this very command without it, in a process of its own, and starts that anew when
a file has changed.

The process is told to end as by a user, with time to drain. One that failed is started again by the
next change: whoever is writing the application is about to mend it.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import Process

from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import run
from parley._node.logs import one_line

# Seconds between two looks at the files, and for a process to end before it is killed.
LOOK: Final = 0.5
END: Final = 15.0
# Files that are watched; what is in more of them goes unseen.
MOST_FILES: Final = 10_000
# Names of changed files that are said.
MOST_SAID: Final = 3
_SUFFIX: Final = ".py"
_PASSED_BY: Final = ("__pycache__", "node_modules", "site-packages")


class Files:
    """The `.py` files below `directories`, and `others`, by what tells that one was written. Hidden
    directories and installed packages are passed by."""

    def __init__(self, directories: Iterable[Path], others: Iterable[Path] = ()) -> None:
        self._directories = list(directories)
        self._others = list(others)
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """Those that were written, made or removed since the last look."""
        before, self._seen = self._seen, self._look()
        return sorted(
            path
            for path in before.keys() | self._seen.keys()
            if before.get(path) != self._seen.get(path)
        )

    def _look(self) -> dict[Path, tuple[int, int, int]]:
        found: dict[Path, tuple[int, int, int]] = {}
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                continue  # it was removed meanwhile
            found[path] = status.st_mtime_ns, status.st_ctime_ns, status.st_size
            if len(found) == MOST_FILES:
                break
        return found

    def _paths(self) -> Iterator[Path]:
        yield from self._others
        for top in self._directories:
            for place, below, names in os.walk(top):
                below[:] = [
                    name for name in below if not name.startswith(".") and name not in _PASSED_BY
                ]
                yield from (Path(place, name) for name in names if name.endswith(_SUFFIX))


def keep_running(options: NodeOptions, directories: Iterable[Path], others: Iterable[Path]) -> None:
    """Run this process' own command line without `--reload` until a signal comes."""
    command = [sys.executable, "-P", "-m", "parley", *without_reload(sys.argv[1:])]
    files = Files(directories, others)
    run(options, partial(_supervise, command, files), signals_are_its_own=True)


def without_reload(arguments: list[str]) -> list[str]:
    """The same arguments, but for `--reload`, `--reload-dir` and its value."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*kept, argument, *rest]
        if argument == "--reload-dir":
            next(rest, None)
        elif argument != "--reload" and not argument.startswith("--reload-dir="):
            kept.append(argument)
    return kept


async def _supervise(command: list[str], files: Files, options: NodeOptions, out: Output) -> None:
    # Also when the terminal is closed: the process is not of its session, and would stay.
    ending = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    with anyio.open_signal_receiver(*ending) as signals:
        while True:
            process = await anyio.open_process(
                command, stdin=None, stdout=None, stderr=None, start_new_session=True
            )
            why: signal.Signals | list[Path] = []
            try:
                why = await _what_ends(process, files, signals, out)
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process, signal.SIGINT if why == signal.SIGINT else signal.SIGTERM)
            if isinstance(why, signal.Signals):
                return
            names = ", ".join(one_line(str(path)) for path in why[:MOST_SAID])
            more = f" and {len(why) - MOST_SAID} more" if len(why) > MOST_SAID else ""
            out.event("reloading", changed=[str(path) for path in why])
            out.remark(f"parley: {names}{more} changed: starting anew")


async def _what_ends(
    process: Process, files: Files, signals: AsyncIterator[signal.Signals], out: Output
) -> signal.Signals | list[Path]:
    """What ends the process that runs: a signal, or files that changed."""
    found: list[signal.Signals | list[Path]] = []

    async def signalled() -> None:
        found.append(await anext(signals))
        tasks.cancel_scope.cancel()

    async def ended() -> None:
        code = await process.wait()
        out.event("ended", exit=code)
        out.remark(f"parley: it ended with exit code {code}: waiting for a change")

    async def changed() -> None:
        paths: list[Path] = []
        while not paths:  # nothing tells of it: they are looked at
            await anyio.sleep(LOOK)
            paths = await to_thread.run_sync(files.changed)
        found.append(paths)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for one in (signalled, ended, changed):
            tasks.start_soon(one)
    return found[0]


async def _end(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)
        with anyio.move_on_after(END):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await process.aclose()
