"""Makes `node/cli/completion/completions.json` of the commands: shells are answered from it.

python -m docs.build_completions            # write it
python -m docs.build_completions --check    # fail if it is not up to date
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import typer.main
from typer.core import TyperArgument, TyperOption

from parley._node.cli.completion import suggestions
from parley._node.cli.completion.answering import TABLE
from parley._node.cli.completion.suggestions import NamesOf, OneOfThese
from parley._node.cli.main import app


def build() -> str:
    """The table as JSON, a line for each option and command."""
    options: dict[str, None] = {}
    commands = {}
    for path, command in _all(typer.main.get_command(app), ""):
        own = [json.dumps(_option(each)) for each in _params(command, TyperOption)]
        own.append(json.dumps(_HELP))
        options.update(dict.fromkeys(own))
        numbers = [list(options).index(each) for each in own]
        arguments = _params(command, TyperArgument)
        commands[path] = {
            "help": _first(command.help),
            "options": numbers,
            "arguments": [_of(each) for each in arguments],
            "repeats": any(each.nargs == -1 for each in arguments),
        }
    lines = ",\n".join(
        f"  {json.dumps(path)}: {json.dumps(entry)}" for path, entry in commands.items()
    )
    listed = ",\n".join(f"  {option}" for option in options)
    return f'{{"options": [\n{listed}\n],\n"commands": {{\n{lines}\n}}}}\n'


_HELP = {
    "names": ["--help", "-h"],
    "help": "Show this message and exit.",
    "value": False,
    "many": False,
    "of": None,
}


def _all(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    commands: Any = getattr(command, "commands", {})
    shown = [(name, commands[name]) for name in commands if not commands[name].hidden]
    for name, below in shown:
        yield from _all(below, f"{path} {name}".strip())


def _params(command: Any, kind: Any) -> list[Any]:
    return [each for each in command.params if isinstance(each, kind) and not each.hidden]


def _option(option: Any) -> dict[str, Any]:
    return {
        "names": [*option.opts, *option.secondary_opts],
        "help": " ".join((option.help or "").split()),
        "value": not (option.is_flag or option.count),
        "many": option.multiple,
        "of": _of(option),
    }


def _of(parameter: Any) -> Any:
    """What its values are; `typer` for what only a function elsewhere can say."""
    described = parameter.type_descriptor
    complete: Any = described.parameter_info.autocompletion
    if complete is None:
        return [choice.value for choice in described.choices] if described.choices else None
    made = getattr(complete, "__self__", None)
    if isinstance(made, OneOfThese):
        return [str(name) for name in made.names]
    if isinstance(made, NamesOf):
        return {"name": "algorithms", "parameter": made.parameter}
    named = str(getattr(complete, "__name__", ""))
    return {"name": named} if getattr(suggestions, named, None) is complete else "typer"


def _first(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def main(arguments: list[str]) -> int:
    """Write the table, or with `--check` report that it is out of date."""
    text = build()
    if arguments != ["--check"]:
        TABLE.write_text(text, "utf-8")
    elif TABLE.read_text("utf-8") != text:
        print(f"{TABLE} is not what the commands say", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
