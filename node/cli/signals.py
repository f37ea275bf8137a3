"""Effects of SIGINT, SIGTERM and SIGHUP on a command, and a forced exit if it doesn't end.

A handler in a thread can't be cancelled, and a coroutine can ignore cancellation. When a program
ends, asyncio and Python wait for both without a limit.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, Self

import anyio

from parley._node.cli.exit_codes import InterruptedCommandError
from parley._node.config import NodeConfig

logger = logging.getLogger("parley")

# The function that SIGHUP calls.
Hangup = Callable[[], Awaitable[None]]

# Maximum seconds for closing a node after its `drain_timeout`.
CLOSING: Final = 8.0
# Maximum number of threads to name in the log if they don't end.
MOST_NAMED: Final = 10

_commands = 0  # commands running in this process


async def run_until_interrupted(command: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run `command`. SIGINT, SIGTERM and SIGHUP cancel it, so that its peers are notified.

    Raises:
        InterruptedCommandError: it was cancelled.
    """
    caught = await run_until_signal(command, *args)
    if caught is not None:
        raise InterruptedCommandError(caught)


async def run_until_signal(
    command: Callable[..., Awaitable[None]], *args: Any
) -> signal.Signals | None:
    """Run `command` like `run_until_interrupted`, but return the signal, if any."""
    caught: list[signal.Signals] = []

    async def watch() -> None:
        caught.append(await anext(signals))
        tasks.cancel_scope.cancel()

    with exit_signals() as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await command(*args)
            tasks.cancel_scope.cancel()
    return caught[0] if caught else None


async def run_with_hangup(command: Callable[[], Awaitable[None]], hangup: Hangup) -> None:
    """Run `command`. SIGHUP calls `hangup`, which must not raise, instead of ending the command."""

    async def watch() -> None:
        async for _ in signals:
            await hangup()

    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await command()
            tasks.cancel_scope.cancel()


@contextmanager
def exit_signals(seconds: float | None = None) -> Iterator[AsyncIterator[signal.Signals]]:
    """Receive SIGINT and SIGTERM, and SIGHUP unless it reloads a server or is ignored (nohup).

    After the first signal the process is ended within `seconds`, by default the longest time that
    closing a node can take.
    """
    ends = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        ends.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*ends) as signals:
        yield _ExitSignals(signals, longest_shutdown() if seconds is None else seconds)


class _ExitSignals:
    """Signals; the first one starts the time limit for the process to end."""

    def __init__(self, signals: AsyncIterator[signal.Signals], seconds: float) -> None:
        self._signals = signals
        self._seconds = seconds

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> signal.Signals:
        number = await anext(self._signals)
        force_exit_after(self._seconds, 128 + number)
        return number


def longest_shutdown(drain_timeout: float = NodeConfig().drain_timeout, drains: int = 1) -> float:
    """Return the maximum number of seconds that closing a node takes, with `drains` drain
    timeouts.
    """
    return drains * drain_timeout + CLOSING


@contextmanager
def running_command() -> Iterator[None]:
    """Mark that a command is running. Otherwise no exit is forced."""
    global _commands
    _commands += 1
    try:
        yield
    finally:
        _commands -= 1


def force_exit_after(seconds: float, code: int) -> None:
    """Exit with `code` after `seconds`, if the command still runs or Python is waiting for
    threads.
    """
    thread = threading.Thread(target=_end, args=(seconds, code), name="parley end", daemon=True)
    thread.start()


def _end(seconds: float, code: int) -> None:
    threading.Event().wait(seconds)
    # Python marks its main thread as ended before it waits for other threads.
    if not _commands and threading.main_thread().is_alive():
        return
    logger.error(
        "tasks did not end within %g s of the signal; exiting anyway; running threads: %s",
        seconds,
        ", ".join(_threads()) or "none (tasks ignore cancellation)",
        extra={"event": "end.forced", "seconds": seconds},
    )
    logging.shutdown()
    os._exit(code)


def _threads() -> Iterator[str]:
    """Yield the names and positions of the other threads."""
    frames = sys._current_frames()
    ours = threading.main_thread(), threading.current_thread()
    others = (thread for thread in threading.enumerate() if thread not in ours)
    for thread in islice(others, MOST_NAMED):
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            code = frame.f_code
            yield f"{thread.name} in {code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
