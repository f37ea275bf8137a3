"""The end of a process after a signal, also if a handler doesn't end.

A handler in a thread can't be cancelled, and a coroutine can ignore cancellation. Both asyncio and
Python itself wait for them without a limit when a program ends.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from parley._node.config import NodeConfig

logger = logging.getLogger("parley")

# Seconds that closing a node takes at most after its `drain_timeout`.
CLOSING: Final = 8.0
# How many threads that don't end are named in the log.
MOST_NAMED: Final = 10

_commands = 0  # that run in this process


def longest_end(drain_timeout: float = NodeConfig().drain_timeout, drains: int = 1) -> float:
    """Return the seconds that a node takes to end at most, after `drains` drains."""
    return drains * drain_timeout + CLOSING


@contextmanager
def running_command() -> Iterator[None]:
    """Mark the time in which a command runs: outside of it nothing is ended."""
    global _commands
    _commands += 1
    try:
        yield
    finally:
        _commands -= 1


def end_within(seconds: float, code: int) -> None:
    """End the process with `code` in `seconds`, if the command or Python's own end waits then."""
    thread = threading.Thread(target=_end, args=(seconds, code), name="parley end", daemon=True)
    thread.start()


def _end(seconds: float, code: int) -> None:
    threading.Event().wait(seconds)
    # Python marks its main thread as ended before it waits for the others.
    if not _commands and threading.main_thread().is_alive():
        return
    logger.error(
        "not ended %g s after the signal, and ended now; threads that run: %s",
        seconds,
        ", ".join(_threads()) or "none, so tasks ignore cancellation",
        extra={"event": "end.forced", "seconds": seconds},
    )
    logging.shutdown()
    os._exit(code)


def _threads() -> Iterator[str]:
    """Name the other threads, and where each of them is."""
    frames = sys._current_frames()
    ours = threading.main_thread(), threading.current_thread()
    others = (thread for thread in threading.enumerate() if thread not in ours)
    for thread in islice(others, MOST_NAMED):
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            code = frame.f_code
            yield f"{thread.name} in {code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
