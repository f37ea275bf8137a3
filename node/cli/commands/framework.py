"""Helpers to declare commands: click's classes with sections, examples and lazy imports.

A declaration names the function that runs the command as `module:function`. Help, completion and
the reference page need only the declarations, and don't import that function.
"""

import gc
import math
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

ADDRESS: Final = "address"  # the argument that a context can supply
_MARK: Final = "@"
_PACKAGE: Final = __name__.rpartition(".commands.")[0]  # package of the functions
_ALL: Final = "parley.help_all"

# Fixed words, or `module:function` that returns words with descriptions; click calls it.
Completions = Sequence[str] | str


class Number(click.ParamType[float]):
    """A number between `min` and `max`, not NaN."""

    name = "number"

    def __init__(self, min: float = -math.inf, max: float = math.inf) -> None:
        self._min, self._max = min, max

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        if not self._min <= number <= self._max:
            self.fail(f"{value} is not in {self._min:g} to {self._max:g}.", param, ctx)
        return number


class _File(click.Path):
    """A path that isn't empty. click would treat an empty path as the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path '' is empty; give '.' for the current directory", param, ctx)
        return super().convert(value, param, ctx)


PATH: Final = click.Path(path_type=Path)
FILE: Final = _File(path_type=Path)


class Option(click.Option):
    """An option in a `section` of the help. `--help` hides `advanced` options.

    If it has a `setting`, such as `serve.listen`, the command receives it in `settings`, a mapping
    for `load_settings`.
    """

    def __init__(
        self,
        names: Sequence[str],
        section: str = "Options",
        advanced: bool = False,
        setting: str = "",
        **settings: Any,
    ) -> None:
        super().__init__(names, **settings)
        self.section = section
        self.advanced = advanced
        self.setting = setting


def option(*names: str, completes: Completions = (), **settings: Any) -> Option:
    return Option(names, shell_complete=_completer(completes), **settings)


def flag(*names: str, **settings: Any) -> Option:
    return Option(names, is_flag=True, **settings)


def argument(
    name: str, metavar: str, completes: Completions = (), required: bool = True, **settings: Any
) -> click.Argument:
    settings["metavar"] = metavar if required or "[" in metavar else f"[{metavar}]"
    settings["shell_complete"] = _completer(completes)
    return click.Argument([name], required=required, **settings)


class Command(click.Command):
    """A command that lists its options by section, with `--help-all` if some are advanced."""

    def __init__(
        self,
        name: str,
        target: str,
        params: list[click.Parameter],
        *,
        takes_node_options: bool = False,
        options_class: str = "",
        **settings: Any,
    ) -> None:
        self.target = target
        self.takes_node_options = takes_node_options
        self.options_class = options_class
        if any(isinstance(each, Option) and each.advanced for each in params):
            params = [*params, _HELP_ALL]
        super().__init__(name, params=params, callback=self._run, **settings)

    def _run(self, **given: Any) -> None:
        function = load(self.target)
        begin()
        # Options that are not given are None, including repeatable ones.
        given = {
            name: (list(value) or None) if isinstance(value, tuple) else value
            for name, value in given.items()
        }
        first = []
        if self.takes_node_options:
            first.append(load("options:take_node_options")(given))
        settings = {
            each.setting: (each.opts[0], given.pop(each.name))
            for each in self.params
            if isinstance(each, Option) and each.setting
        }
        if settings:
            given["settings"] = settings
        if self.options_class:
            given = {"given": load(self.options_class)(**given)}
        function(*first, **given)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. If ADDR is missing, use the address of the selected context."""
        first = next((one for one in self.params if isinstance(one, click.Argument)), None)
        if (
            first is not None
            and first.name == ADDRESS
            and first.required
            and not ctx.resilient_parsing
            and self._omits_address(ctx, args)
        ):
            args = [_MARK, *args]
        return super().parse_args(ctx, args)

    def _omits_address(self, ctx: click.Context, args: list[str]) -> bool:
        given: dict[str, Any] = self.make_parser(ctx).parse_args(args=list(args))[0]
        text = given.get(ADDRESS)
        if isinstance(text, str) and (text.startswith(_MARK) or "://" in text):
            return False
        named = given.get("context") or os.environ.get("PARLEY_CONTEXT")
        return isinstance(named, str) or bool(load("context_file:is_one_in_use")())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for each in self.get_params(ctx):
            is_left_out = getattr(each, "advanced", False) and not ctx.meta.get(_ALL)
            record = None if is_left_out else each.get_help_record(ctx)
            if record is not None and isinstance(each, click.Option):
                sections.setdefault(getattr(each, "section", "Options"), []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


class Group(click.Group):
    """A command with subcommands, listed in the order of their declarations.

    `sections` maps titles in the help to commands. `moved` maps former names to replacements.
    """

    def __init__(
        self,
        name: str,
        sections: Mapping[str, Sequence[click.Command]],
        moved: Mapping[str, str],
        **settings: Any,
    ) -> None:
        super().__init__(name, **settings)
        for each in (each for commands in sections.values() for each in commands):
            self.add_command(each)
        self._sections = sections
        self._moved = moved

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; fail with the replacement for a former name."""
        if args[0] in self._moved and not ctx.resilient_parsing:
            ctx.fail(f"'{ctx.command_path} {args[0]}' is now '{self._moved[args[0]]}'.")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {
            title: [(each.name or "", each) for each in commands if not each.hidden]
            for title, commands in self._sections.items()
        }
        width = max(len(name) for commands in shown.values() for name, _ in commands)
        limit = formatter.width - 6 - width
        for title, commands in shown.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:{width}}", each.get_short_help_str(limit)) for name, each in commands]
                )


def load(target: str) -> Callable[..., Any]:
    """Import the function `module:function` of `node.cli`."""
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    return function


def command(
    name: str,
    target: str,
    help: str,
    *params: click.Parameter,
    examples: Iterable[str] = (),
    **settings: Any,
) -> Command:
    """Declare a command that `target` runs.

    With `takes_node_options`, its first argument is a `NodeOptions` with the options that all such
    commands share. With an `options_class`, its argument `given` is an object of that class with
    the other options.
    """
    settings |= {"help": help, "short_help": help.partition("\n\n")[0]}
    settings["epilog"] = _epilog(examples)
    return Command(name, target, list(params), **settings)


def group(
    name: str,
    help: str,
    *commands: click.Command,
    sections: Mapping[str, Sequence[click.Command]] = MappingProxyType({}),
    examples: Iterable[str] = (),
    moved: Mapping[str, str] = MappingProxyType({}),
    **settings: Any,
) -> Group:
    """Declare a group of commands, which its help may show in `sections`."""
    settings |= {"help": help, "short_help": help, "epilog": _epilog(examples)}
    return Group(name, sections or {"Commands": commands}, moved, no_args_is_help=True, **settings)


def begin() -> None:
    """Prepare to run a command after its imports.

    Collect garbage from now on, except among the imported modules, and let SIGINT raise
    KeyboardInterrupt.
    """
    if gc.isenabled():
        return  # already prepared, as in tests
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _epilog(examples: Iterable[str]) -> str | None:
    lines = [f"  {example}" for example in examples]
    return "\n".join(["Examples:", "", "\b", *lines]) if lines else None


def _completer(completes: Completions) -> Any:
    if not completes:
        return None

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if isinstance(completes, str):
            found: Iterable[tuple[str, str]] = load(completes)(ctx, param, incomplete)
        else:
            found = ((word, "") for word in completes)
        return [
            CompletionItem(word, help=text) for word, text in found if word.startswith(incomplete)
        ]

    return complete


def _show_all(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL: Final = flag(
    "--help-all",
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show the help with all options.",
)
