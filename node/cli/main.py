"""`parley`: the commands, and how each of them ends.

One rule: whatever happens, one clear sentence and the exit code that goes with it.
"""

import logging
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from node.cli import call, demo, identity, serve
from node.cli.exits import Exit, Failure, failure
from node.cli.output import Output

app = typer.Typer(
    name="parley",
    help="A secure peer-to-peer messaging node.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(identity.app, name="id")
app.command("serve")(serve.serve)
app.command("call")(call.call)
app.command("ping")(call.ping)
app.command("demo")(demo.demo)
app.command("demo-responder", hidden=True)(demo.demo_responder)

INTERRUPTED = 130


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
    out = Output("--json" in sys.argv)
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as error:
        code = error.exit_code
    except Exception as error:
        code = _failed(out, error)
    sys.exit(code if isinstance(code, int) else Exit.DONE)


def _failed(out: Output, error: Exception) -> int:
    # A task group of anyio's wraps what went wrong inside; one cause is the cause.
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    found = failure(error)
    if found is None:
        logging.getLogger("parley").error("a bug in parley", exc_info=error)
        found = Failure(Exit.FAILED, Exit.FAILED, "internal-error", f"internal error: {error!r}")
    out.fail(found)
    return found.exit
