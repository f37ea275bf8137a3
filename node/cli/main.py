"""`parley`: the commands, and how each of them ends.

Whatever happens, a command ends with one clear sentence and the exit code that belongs to it. The
module of a command is imported when the command is named, so that none waits for the others.
"""

import logging
import signal
import sys
from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any, Final, NoReturn, cast

import typer
from typer.core import TyperCommand

from parley._node.cli.beginning import PlainCommand, PlainGroup
from parley._node.cli.completion.command import PROGRAM
from parley._node.cli.exits import Exit, Interrupted, failure
from parley._node.cli.helps import HELPS, epilog
from parley._node.cli.output import CommandFailure, Output, abandon_stdout, set_up_streams


@dataclass(frozen=True)
class Family:
    """Commands with a name in common."""

    help: str
    commands: "Mapping[str, str | Family]"


# Each command's function, below `node.cli`.
COMMANDS: Final[Mapping[str, str | Family]] = {
    "id": Family("Make and show identities.", {"new": "identity.new", "show": "identity.show"}),
    "serve": "serve.command.serve",
    "run": "application.command.run_application",
    "console": "console.console",
    "find": "find.find",
    "call": "call.call",
    "topics": "topics.command.topics",
    "ping": "ping.ping",
    "sub": "sub.sub",
    "pub": "pub.pub",
    "chat": "chat.command.chat",
    "send": "transfer.send.send",
    "receive": "transfer.receive.receive",
    "demo": "demo.command.demo",
    "simulate": "simulation.simulation",
    "bus": Family(
        "Publish and consume events of a durable bus; look after it.",
        {
            "publish": "bus.publish.publish",
            "consume": "bus.consume.consume",
            "tail": "bus.stream.tail",
            "groups": "bus.groups.groups",
            "dlq": Family(
                "Dead letters: list, replay or drop them.",
                {
                    "list": "bus.dead_letters.list_dead",
                    "replay": "bus.dead_letters.replay_dead",
                    "drop": "bus.dead_letters.drop_dead",
                },
            ),
            "replay": "bus.groups.replay",
            "trim": "bus.stream.trim",
            "backup": "bus.backup.backup",
            "restore": "bus.backup.restore",
        },
    ),
    "journal": Family(
        "Make an auditor's keys; look at, check, export and prune journals.",
        {
            "keygen": "journal.keygen.keygen",
            "inspect": "journal.inspect.inspect",
            "verify": "journal.verify.verify",
            "export": "journal.export.export",
            "prune": "journal.prune.prune",
        },
    ),
    "pipeline": Family(
        "From journals to tables and a report, on Apache Spark.",
        {
            "run": "pipeline.commands.run",
            "follow": "pipeline.commands.follow",
            "report": "pipeline.commands.report",
        },
    ),
    "peers": Family(
        "Show and change known peers.",
        {
            "list": "peers.list_peers",
            "add": "peers.add",
            "forget": "peers.forget",
            "rename": "peers.rename",
        },
    ),
    "context": Family(
        "Names for the nodes that you speak with, and how you do.",
        {
            "add": "context.command.add",
            "use": "context.command.use",
            "list": "context.command.list_contexts",
            "show": "context.command.show",
            "remove": "context.command.remove",
        },
    ),
    "federation": Family(
        "Look at a federation of servers: who is there, which way, and what is wrong.",
        {
            "list": "federation.list_servers",
            "path": "federation.path",
            "check": "federation.check",
        },
    ),
    "doctor": "doctor.command.doctor",
    "completion": "completion.command.completion",
    "errors": "errors.errors",
    "demo-responder": "demo.command.demo_responder",
    "demo-server": "demo.command.demo_server",
}
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    # `parley errors -1`: a number below 0 is a code, and not an unknown option.
    "errors": {"context_settings": {"ignore_unknown_options": True}},
    "demo-responder": {"hidden": True},
    "demo-server": {"hidden": True},
}


class _Commands(UserDict[str, Any]):
    """Commands by their names, each made when it is first asked for."""

    def __init__(self, commands: Mapping[str, str | Family], path: str = "") -> None:
        super().__init__(commands)
        self._path = path

    def __getitem__(self, name: str) -> Any:
        found, path = super().__getitem__(name), f"{self._path}{name}"
        if isinstance(found, Family):
            group: Any = _Group(
                name=name, help=found.help, no_args_is_help=True, epilog=epilog(path)
            )
            group.commands = _Commands(found.commands, f"{path} ")
            found = self.data[name] = group
        elif isinstance(found, str):
            alone, function = typer.Typer(add_completion=False), _function(found)
            kind = getattr(function, "command_class", PlainCommand)
            settings = _SETTINGS.get(name, {})
            alone.command(name, cls=kind, epilog=epilog(path), **settings)(function)
            found = self.data[name] = typer.main.get_command(alone)
        return found

    def listed(self, name: str) -> Any:
        """What a list of commands shows of one: the module of none is imported for it."""
        entry = HELPS.get(f"{self._path}{name}")
        if entry is None:
            return self.get(name)
        hidden = bool(_SETTINGS.get(name, {}).get("hidden"))
        return TyperCommand(name, help=entry.help, hidden=hidden)


def _function(place: str) -> Any:
    """A command's function, its module imported."""
    module, _, function = f"parley._node.cli.{place}".rpartition(".")
    return getattr(import_module(module), function)


class _Group(PlainGroup):
    """Commands that are imported when they run, and not when they are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        commands = cast("_Commands", self.commands)
        return commands.listed(cmd_name) if cmd_name in commands else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.commands[name], rest


class _Parley(_Group):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(COMMANDS)


app = typer.Typer(
    cls=_Parley,
    name="parley",
    help="A secure peer-to-peer messaging node.",
    epilog=epilog(""),
    no_args_is_help=True,
    add_completion=False,  # `parley completion` prints it, and no command edits files of a shell
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

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
        code = app(standalone_mode=False, prog_name=PROGRAM)
        if code == 128 + signal.SIGINT:  # what typer makes of KeyboardInterrupt
            code = _failed(out, Interrupted(signal.SIGINT))
    except SystemExit as ended:
        # Typer exits with 1 at a closed pipe.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        code = _failed(out, ended.__context__)
    except Exception as error:
        code = _failed(out, error)
    sys.exit(code if isinstance(code, int) else Exit.DONE)


def _failed(out: Output, error: Exception) -> int:
    error = _cause(error)
    found = failure(error)
    if found is None:
        logging.getLogger("parley").error(
            "a bug in parley", exc_info=error, extra={"event": "cli.bug"}
        )
        found = CommandFailure(
            Exit.FAILED,
            Exit.FAILED,
            "internal-error",
            f"internal error: {type(error).__name__}: {error}",
        )
    if isinstance(error, BrokenPipeError):
        abandon_stdout()  # the reader has left, as in `parley .. | head`: exit quietly
        return 128 + signal.SIGPIPE
    try:
        out.fail(found)
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
