"""The entry point of `parley`: run a command and report a failure with a message and an exit
code.
"""

import os
import signal
import sys
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn

import click

from parley._node.cli.commands.root import PARLEY, PROGRAM

if TYPE_CHECKING:
    from parley._node.cli.output import CommandFailure


def main() -> NoReturn:
    """Run `parley` with the arguments of the process."""
    set_up_streams()
    code = 0
    try:
        with PARLEY.make_context(PROGRAM, sys.argv[1:]) as context:
            PARLEY.invoke(context)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = _failed(click.UsageError("a command is missing"))
    except (KeyboardInterrupt, Exception) as error:
        code = _failed(error)
    sys.exit(code)


def _failed(error: BaseException) -> int:
    # Imported here: these imports are slow, and most commands succeed.
    import logging

    from parley._node.cli.exit_codes import Exit, InterruptedCommandError, failure
    from parley._node.cli.output import CommandFailure, Output, discard_stdout

    # Read from argv, because parsing the options may have failed. The settings are unknown here, so
    # a successor that no person accepted has no petname.
    as_json = "--json" in takewhile(lambda argument: argument != "--", sys.argv)
    out = Output(as_json, follow=False)
    if isinstance(error, KeyboardInterrupt):
        error = InterruptedCommandError(signal.SIGINT)
    error = _cause(error, failure)
    found = failure(error)
    if found is None:
        logging.getLogger("parley").error(
            "bug in parley: unexpected exception", exc_info=error, extra={"event": "cli.bug"}
        )
        text = f"internal error: {type(error).__name__}: {error}"
        found = CommandFailure(Exit.FAILED, Exit.FAILED, "internal-error", text)
    if isinstance(error, BrokenPipeError):
        discard_stdout()  # the reader has closed the pipe, as in `parley .. | head`: exit quietly
        return 128 + signal.SIGPIPE
    try:
        out.fail(found)
        sys.stdout.flush()
    except OSError:
        discard_stdout()
        print(f"parley: {found.text}", file=sys.stderr)
    return found.exit


def _cause(
    error: BaseException, failure: "Callable[[BaseException], CommandFailure | None]"
) -> BaseException:
    """Return the cause inside the exception groups of task groups, preferably a bug."""
    if not isinstance(error, ExceptionGroup):
        return error
    causes = [_cause(inner, failure) for inner in error.exceptions]
    return next((cause for cause in causes if failure(cause) is None), causes[0])


def set_up_streams() -> None:
    """Prepare standard input, output and error.

    A closed descriptor is opened on the null device. Otherwise a socket could get its number and
    receive the program's output. Characters that the encoding lacks are escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # uses the lowest free number, which is this one
    # A closed standard input is reported when a command reads it.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until the process ends
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
