"""`parley`: the commands, and how each of them ends.

One rule: whatever happens, one clear sentence and the exit code that goes with it.
"""

import logging
import signal
import sys
from importlib.metadata import version
from itertools import takewhile
from typing import Annotated, NoReturn

import typer

from node.cli import call, completion, doctor, errors, identity, peers, serve
from node.cli.bus import commands as bus
from node.cli.chat.command import chat
from node.cli.demo.command import demo, demo_responder
from node.cli.exits import Exit, Interrupted, failure
from node.cli.journal import commands as journal
from node.cli.output import Failure, Output, abandon_stdout, set_up_streams
from node.cli.pipeline import commands as pipeline
from node.cli.pub import pub
from node.cli.receive import receive
from node.cli.relay import relay
from node.cli.send import send
from node.cli.simulate import simulation
from node.cli.sub import sub

app = typer.Typer(
    name="parley",
    help="A secure peer-to-peer messaging node.",
    no_args_is_help=True,
    add_completion=False,  # `parley completion` prints it, and no command edits files of a shell
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(identity.app, name="id")
app.command("serve")(serve.serve)
app.command("relay")(relay)
app.command("call")(call.call)
app.command("ping")(call.ping)
app.command("sub")(sub)
app.command("pub")(pub)
app.command("chat")(chat)
app.command("send")(send)
app.command("receive")(receive)
app.command("demo")(demo)
app.command("simulate")(simulation)
app.add_typer(bus.app, name="bus")
app.add_typer(journal.app, name="journal")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(peers.app, name="peers")
app.command("doctor")(doctor.doctor)
app.command("completion")(completion.completion)
app.command("errors", context_settings=errors.SETTINGS)(errors.errors)
app.command("demo-responder", hidden=True)(demo_responder)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("parley-node"))
        raise typer.Exit


@app.callback()
def parley(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A secure peer-to-peer messaging node."""


def main() -> NoReturn:
    """The entry point of the script `parley`."""
    set_up_streams()
    # Also for what fails before the options are read.
    out = Output("--json" in takewhile(lambda argument: argument != "--", sys.argv))
    code: object = Exit.DONE
    try:
        code = app(standalone_mode=False, prog_name=completion.PROGRAM)
        if code == 128 + signal.SIGINT:  # what typer makes of KeyboardInterrupt
            code = _failed(out, Interrupted(signal.SIGINT))
    except Exception as error:
        code = _failed(out, error)
    sys.exit(code if isinstance(code, int) else Exit.DONE)


def _failed(out: Output, error: Exception) -> int:
    error = _cause(error)
    found = failure(error)
    if found is None:
        logging.getLogger("parley").error("a bug in parley", exc_info=error)
        found = Failure(Exit.FAILED, Exit.FAILED, "internal-error", f"internal error: {error!r}")
    if isinstance(error, BrokenPipeError):
        abandon_stdout()  # as `parley ... | head` means it: there is nobody to tell
        return Exit.FAILED
    try:
        out.fail(found)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        abandon_stdout()
        print(f"parley: {found.text}", file=sys.stderr)
    return found.exit


def _cause(error: Exception) -> Exception:
    """What went wrong inside the task groups that wrapped it; a bug of ours goes first."""
    if not isinstance(error, ExceptionGroup):
        return error
    causes = [_cause(inner) for inner in error.exceptions]
    return next((cause for cause in causes if failure(cause) is None), causes[0])
