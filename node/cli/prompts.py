"""Yes-or-no questions at the terminal, asked on standard error."""

import os
import select
import sys
import termios
from contextlib import suppress
from typing import Final

import anyio

from parley._node.cli.output import Output
from parley._node.cli.standard_io import stdin_descriptor
from parley._node.errors import FileError
from parley._node.logs import one_line

_YES: Final = ("y", "yes")
_NO: Final = ("n", "no", "")
_TRIES: Final = 3  # answers that are neither yes nor no
_LONGEST: Final = 1_024  # bytes of a line
# Seconds between two looks at the keyboard. A loop that waits for a terminal may have to make it
# non-blocking, and with it the terminal of the shell and of all that it has started.
_LOOK: Final = 0.05


def can_prompt(out: Output) -> bool:
    """Whether a user can answer: standard input and error are terminals, and JSON is off."""
    if out.as_json or not sys.stderr.isatty():
        return False
    try:
        return os.isatty(stdin_descriptor())
    except FileError:
        return False


async def prompt_yes_no(question: str) -> bool:
    """Show a question and wait for yes or no; requires `can_prompt`. Earlier input is discarded.
    The end of the input and three invalid answers mean no."""
    print("\n".join(map(one_line, question.split("\n"))), end="", file=sys.stderr, flush=True)
    _forget_what_was_typed(stdin_descriptor())
    for _ in range(_TRIES):
        print(" [yes/no] ", end="", file=sys.stderr, flush=True)
        try:
            answer = await _line(stdin_descriptor())
        except anyio.get_cancelled_exc_class():
            print(file=sys.stderr)  # what is said next begins a line
            raise
        if answer is None:
            print(file=sys.stderr)
            return False
        if answer in _YES or answer in _NO:
            return answer in _YES
        print("That is neither.", end="", file=sys.stderr)
    return False


def _forget_what_was_typed(descriptor: int) -> None:
    """Discard input that was typed before the question."""
    try:
        is_ours = os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        is_ours = True  # no terminal that a shell shares out among its jobs
    # In the background it is the shell's, and to touch it would stop this process.
    if is_ours:
        with suppress(termios.error):  # the terminal may hang up at any moment
            termios.tcflush(descriptor, termios.TCIFLUSH)


async def _line(descriptor: int) -> str | None:
    """Read a line in lower case; None at the end of the input."""
    while not select.select([descriptor], [], [], 0)[0]:  # noqa: ASYNC110  # see _LOOK
        await anyio.sleep(_LOOK)
    # A terminal gives a line at a time. A longer one is neither yes nor no.
    data = os.read(descriptor, _LONGEST)
    return data.decode(errors="replace").strip().lower() if data else None
