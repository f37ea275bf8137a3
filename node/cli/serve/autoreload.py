"""`parley run --reload`: run the same command in a child process, and restart it on file changes.

The child gets the signal that a user would send, so that it can drain. A failed child is restarted
at the next change.
"""

import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectSendStream
from watchfiles import Change, PythonFilter, awatch

from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import run
from parley._node.errors import FileError, os_reason
from parley._node.logs import one_line

# Seconds to wait for the child before it is killed.
END: Final = 15.0
# Maximum number of changed files to print.
MOST_NAMES: Final = 3


class SourceFilter(PythonFilter):
    """Matches changes of Python files outside of installed packages."""

    ignore_dirs = (*PythonFilter.ignore_dirs, "site-packages")


# Why the child is ended: a signal, changed files, or a directory that cannot be watched.
Reason = signal.Signals | list[str] | FileError


def keep_running(options: NodeOptions, directories: Iterable[Path], others: Iterable[Path]) -> None:
    """Run this process's command line without `--reload` until a signal.

    The child restarts when a Python file below `directories` or one of the `others` changes.
    """
    command = [sys.executable, "-P", "-m", "parley", *without_reload(sys.argv[1:])]
    run(
        options,
        partial(_supervise, command, list(directories), [path.absolute() for path in others]),
        handles_signals=True,
    )


def without_reload(arguments: list[str]) -> list[str]:
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


async def _supervise(
    command: list[str],
    directories: Sequence[Path],
    others: Sequence[Path],
    options: NodeOptions,
    out: Output,
) -> None:
    # Without a buffer, so that changes accumulate while the child ends.
    reasons, came = anyio.create_memory_object_stream[Reason](0)
    only_others = {str(path) for path in others}
    async with anyio.create_task_group() as tasks, reasons, came:
        tasks.start_soon(_signalled, reasons)
        tasks.start_soon(partial(_changed, reasons, directories, SourceFilter()))
        if others:
            # Watch the directory, because an editor may replace the file.
            parents = list({path.parent for path in others})
            tasks.start_soon(
                partial(_changed, reasons, parents, lambda _, path: path in only_others, deep=False)
            )
        while True:
            process = await anyio.open_process(
                command, stdin=None, stdout=None, stderr=None, start_new_session=True
            )
            reason: Reason = []
            try:
                async with anyio.create_task_group() as running:
                    running.start_soon(_ended, process, out)
                    reason = await came.receive()
                    running.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    sent = signal.SIGINT if reason == signal.SIGINT else signal.SIGTERM
                    await _end(process, sent)
            if not isinstance(reason, list):
                break
            names = ", ".join(one_line(path) for path in reason[:MOST_NAMES])
            more = f" and {len(reason) - MOST_NAMES} more" if len(reason) > MOST_NAMES else ""
            out.event("reloading", changed=reason)
            out.remark(f"parley: {names}{more} changed: restarting")
        tasks.cancel_scope.cancel()
    if isinstance(reason, FileError):
        raise reason


async def _signalled(reasons: MemoryObjectSendStream[Reason]) -> None:
    # Also SIGHUP: the child has its own session, and would survive the terminal.
    ending = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    with anyio.open_signal_receiver(*ending) as signals:
        async for number in signals:
            await reasons.send(number)


async def _changed(
    reasons: MemoryObjectSendStream[Reason],
    places: Sequence[Path],
    wanted: Callable[[Change, str], bool],
    *,
    deep: bool = True,
) -> None:
    """Send the names of files that change in `places`, or also below them if `deep`."""
    here = Path.cwd()
    try:
        async for changes in awatch(*places, watch_filter=wanted, recursive=deep):
            paths = sorted(Path(path) for _, path in changes)
            await reasons.send(
                [
                    str(path.relative_to(here) if path.is_relative_to(here) else path)
                    for path in paths
                ]
            )
    except OSError as error:
        names = ", ".join(one_line(str(place)) for place in places)
        text = f"cannot watch {names!r}: {os_reason(error)}; choose directories with --reload-dir"
        await reasons.send(FileError(text))


async def _ended(process: Process, out: Output) -> None:
    code = await process.wait()
    out.event("ended", exit=code)
    out.remark(f"parley: exited with {code}; waiting for a change")


async def _end(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)
        with anyio.move_on_after(END):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await process.aclose()
