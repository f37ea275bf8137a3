"""Questions on the terminal, printed on standard error: yes or no, and passphrases."""

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
_TRIES: Final = 3  # attempts to get a valid answer
_LONGEST: Final = 1_024  # bytes of a line
# Seconds between checks of the keyboard. Waiting for it in the event loop could make the terminal
# non-blocking for the shell and all its programs.
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
    """Ask a question and wait for yes or no. Requires `can_prompt`. Earlier input is discarded; the
    end of the input and three invalid answers mean no.
    """
    print("\n".join(map(one_line, question.split("\n"))), end="", file=sys.stderr, flush=True)
    _forget_what_was_typed(stdin_descriptor())
    for _ in range(_TRIES):
        print(" [yes/no] ", end="", file=sys.stderr, flush=True)
        try:
            answer = await _line(stdin_descriptor())
        except anyio.get_cancelled_exc_class():
            print(file=sys.stderr)  # start the next message on a new line
            raise
        if answer is None:
            print(file=sys.stderr)
            return False
        if answer in _YES or answer in _NO:
            return answer in _YES
        print("Please answer yes or no.", end="", file=sys.stderr)
    return False


def prompt_passphrase(question: str) -> bytes:
    """Ask for a passphrase without showing what is typed. Requires `can_prompt`. Earlier input is
    discarded. The bytes are those that the same line in a file would have.

    Raises:
        FileError: the input ends, the line is too long, or the terminal closes.
    """
    descriptor = stdin_descriptor()
    try:
        shown = termios.tcgetattr(descriptor)
        hidden = [*shown[:3], shown[3] & ~termios.ECHO, *shown[4:]]
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, hidden)
        try:
            print(one_line(question), end=": ", file=sys.stderr, flush=True)
            line = os.read(descriptor, _LONGEST)
        finally:
            # Discards the rest of a line that is too long.
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, shown)
            print(file=sys.stderr)  # the typed line end isn't shown either
    except (OSError, termios.error) as error:
        raise FileError(f"cannot read the passphrase from the terminal: {error}") from error
    if not line.endswith(b"\n"):
        raise FileError(
            "cannot read the passphrase from the terminal: expected one line of less than "
            f"{_LONGEST:,} bytes"
        )
    return line.rstrip(b"\r\n")


def _forget_what_was_typed(descriptor: int) -> None:
    """Discard input that was typed before the question."""
    try:
        is_ours = os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        is_ours = True  # not the controlling terminal of this session
    # In the background the terminal belongs to the shell, and using it would stop this process.
    if is_ours:
        with suppress(termios.error):  # the terminal may close at any moment
            termios.tcflush(descriptor, termios.TCIFLUSH)


async def _line(descriptor: int) -> str | None:
    """Read a line in lower case; None at the end of the input."""
    while not select.select([descriptor], [], [], 0)[0]:  # noqa: ASYNC110  # see _LOOK
        await anyio.sleep(_LOOK)
    # A terminal returns one line at a time; a longer one is not a valid answer.
    data = os.read(descriptor, _LONGEST)
    return data.decode(errors="replace").strip().lower() if data else None
