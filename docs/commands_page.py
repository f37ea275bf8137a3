"""Generate the page of commands from their declarations."""

from collections.abc import Iterator
from typing import Any, Final

import click

from parley._node.cli.commands.framework import Group
from parley._node.cli.commands.root import PARLEY, PROGRAM
from parley._node.cli.commands.shared import NODE_OPTIONS

PAGE: Final = "docs/reference/commands.md"
_HEAD: Final = "| command | argument or option | meaning |\n| --- | --- | --- |\n"


def build() -> str:
    """Return the text of the page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Commands\n"
    yield "`parley COMMAND --help` shows the same on the terminal. `parley --version` prints the"
    yield "version. `python -m parley` is `parley`.\n"
    yield "| command | meaning |\n| --- | --- |"
    for path, command, ctx in _commands(PARLEY, click.Context(PARLEY, info_name=PROGRAM)):
        usage = [each.make_metavar(ctx) for each in _arguments(command)]
        yield f"| `{' '.join([path, *usage])}` | {_cell(command.help or '')} |"
    yield "\n## Options of one command\n"
    yield _HEAD.rstrip()
    for path, command, ctx in _commands(PARLEY, click.Context(PARLEY, info_name=PROGRAM)):
        own = [each for each in command.params if each not in NODE_OPTIONS]
        yield from _rows(path.removeprefix(f"{PROGRAM} "), own, ctx)
    takers = [
        f"`{path.removeprefix(f'{PROGRAM} ')}`"
        for path, command, _ in _commands(PARLEY, click.Context(PARLEY))
        if NODE_OPTIONS[0] in command.params
    ]
    yield "\n## Options of all commands that connect or listen\n"
    yield f"{', '.join(takers[:-1])} and {takers[-1]} take these. `--help` shows the first ones,"
    yield "`--help-all` all of them.\n"
    yield "| option | meaning |\n| --- | --- |"
    for option in sorted(NODE_OPTIONS, key=lambda each: each.advanced):
        name, meaning = option.get_help_record(click.Context(PARLEY)) or ("", "")
        yield f"| `{name}` | {_cell(meaning)} |"
    yield ""


def _commands(group: Group, above: click.Context) -> Iterator[tuple[str, Any, click.Context]]:
    for name, command in group.commands.items():
        ctx = click.Context(command, info_name=name, parent=above, show_default=True)
        if isinstance(command, Group):
            yield from _commands(command, ctx)
        elif not command.hidden:
            yield ctx.command_path, command, ctx


def _arguments(command: click.Command) -> list[click.Argument]:
    return [each for each in command.params if isinstance(each, click.Argument)]


def _rows(path: str, params: list[click.Parameter], ctx: click.Context) -> Iterator[str]:
    for param in params:
        record = param.get_help_record(ctx)
        if record is not None:
            yield f"| `{path}` | `{_cell(record[0])}` | {_cell(record[1])} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
