"""How a command begins: soon, and so that it can be interrupted in any moment.

While modules are imported nothing is looked through for garbage, and SIGINT ends the process
without a word (`parley.__main__`); both change when the command itself runs.

typer hands every value of every option to pydantic, also one that is not given, and to import that
takes longer than all that `parley call` does. A text for a text, digits for a number, and a path
are taken as they are here; typer has whatever is left, such as a word where a number belongs. Help
speaks of numbers and paths, and not of Python's types.
"""

import gc
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

from typer._coercion import RuntimeParam, build_runtime_param
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_INT: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_FLOAT: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)


@dataclass(frozen=True)
class PlainFirst(RuntimeParam):
    """Takes plain values, and leaves the others to what typer makes for its parameter."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        taken = self._taken(value)
        if taken is not None:
            return taken
        return build_runtime_param(param.type_descriptor).coerce(value, param, ctx)

    def _taken(self, value: Any) -> Any:
        """The value if it is plain, else None."""
        given = self.parameter_info
        if given.parser is not None:
            try:
                return given.parser(value)
            except ValueError:
                return None  # typer has a sentence for it
        if self.annotation == list[str] and all(isinstance(each, str) for each in value):
            return list(value)
        if self.annotation is bool and value is False:
            return value
        take = _PLAIN.get(self.annotation)
        number = None if take is None else take(value)
        if isinstance(number, int | float):
            below = given.min is not None and number < given.min
            if below or (given.max is not None and number > given.max):
                return None
        return number


class PlainCommand(TyperCommand):
    """A command whose parameters try `PlainFirst`."""

    def invoke(self, ctx: Any) -> Any:
        """Run it; all is imported by then."""
        begin()
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """All its parameters, that of --help too."""
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same of commands with a name in common."""

    def invoke(self, ctx: Any) -> Any:
        """Run what is below, or the name itself."""
        if ctx.invoked_subcommand is None and not ctx._protected_args:
            begin()
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Those of the name itself."""
        return _plain(super().get_params(ctx))


def begin() -> None:
    """From here on a command runs: the collector looks for garbage, but not among what was
    imported, and SIGINT is KeyboardInterrupt."""
    if gc.isenabled():
        return  # the program began before, as in tests
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if isinstance(parameter, TyperArgument | TyperOption):
            described = parameter.type_descriptor
            parameter._runtime_param = PlainFirst(described.parameter_info, described.annotation)
            # An attribute of it alone stands before the method of its class.
            vars(parameter)["display_type_rich"] = partial(_shown_type, parameter)
    return parameters


def _shown_type(parameter: TyperArgument | TyperOption, ctx: Any) -> str | None:
    """What a value is, as help shows it: in a word that needs no Python, where typer has its types;
    nothing of a flag, which has none, and of an argument, which has a name."""
    described = parameter.type_descriptor
    if described.is_choice:
        return " | ".join(str(choice) for choice in described.choices or ())
    if isinstance(parameter, TyperArgument) or parameter.is_flag:
        return None
    if parameter.metavar is not None:
        return parameter.metavar
    kind = next(iter(get_args(described.annotation)), described.annotation)
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _int(value: Any) -> int | None:
    if isinstance(value, str) and _INT.fullmatch(value):
        return int(value)
    return value if type(value) is int else None


def _float(value: Any) -> float | None:
    if isinstance(value, str) and _FLOAT.fullmatch(value):
        return float(value)
    return value if type(value) is float and value == value else None


def _path(value: Any) -> Path | None:
    if isinstance(value, str) and value:
        return Path(value)
    return value if isinstance(value, Path) else None


_PLAIN: Final[dict[Any, Callable[[Any], Any]]] = {
    str: _text,
    int: _int,
    float: _float,
    Path: _path,
}
