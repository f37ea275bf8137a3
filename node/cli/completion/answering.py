"""What a shell is told when it completes a word of `parley`: from a table, importing no command.

A key that is pressed waits for the answer, and to import the commands takes longer than anybody
likes to wait. The table, `completions.json`, is made of the commands by `python -m
docs.build_reference`, and a test holds it to them. What it leaves to typer is answered by typer.
"""

import json
import shlex
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).with_name("completions.json")
_SHELL: Final = "_PARLEY_COMPLETE"  # how a shell asks, by typer's naming
_LINE: Final = "_TYPER_COMPLETE_ARGS"
_ACTION: Final = "_TYPER_COMPLETE_FISH_ACTION"

Offer = tuple[str, str]  # a word, and what is said of it


def answered(environment: Mapping[str, str]) -> bool:
    """Print the answer to the shell that asks by these variables; False if typer has to.

    Raises:
        SystemExit: fish asks only whether there is one.
    """
    shell = environment.get(_SHELL)
    if shell not in ("complete_fish", "complete_zsh"):
        return False
    found = offers(environment.get(_LINE, ""))
    if found is None:
        return False
    if shell == "complete_zsh":
        print(_for_zsh(found))
    elif environment.get(_ACTION) == "is-args":
        sys.exit(0 if found else 1)
    elif found:
        print("\n".join(f"{word}\t{text}" if text else word for word, text in found))
    return True


def offers(line: str) -> list[Offer] | None:
    """What fits at the end of a line that begins with `parley`; None if typer has to say it."""
    words = _split(line)[1:]
    begun = words.pop() if words and not line[-1].isspace() else ""
    place = _Place(json.loads(TABLE.read_text("utf-8")))
    for word in words:
        place.take(word)
    if begun.startswith("-") and "=" in begun:
        name, _, begun = begun.partition("=")
        place.take(name)
    found = place.offers(begun)
    return (
        None if found is None else [(word, text) for word, text in found if word.startswith(begun)]
    )


class _Place:
    """Where in a line we are: in which command, and how much of it was given."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._options: list[dict[str, Any]] = table["options"]
        self._commands: dict[str, dict[str, Any]] = table["commands"]
        self._path = ""
        self._given: set[str] = set()
        self._arguments = 0
        self._waiting: dict[str, Any] | None = None  # an option whose value is next
        self._literal = False  # after --
        self._known = True

    def take(self, word: str) -> None:
        """The next word, which is whole."""
        if self._waiting is not None:
            self._waiting = None
        elif word == "--" and not self._literal:
            self._literal = True
        elif word.startswith("-") and word != "-" and not self._literal:
            name, equals, _ = word.partition("=")
            self._given.add(name)
            option = next((each for each in self._of_command() if name in each["names"]), None)
            if option is not None and option["value"] and not equals:
                self._waiting = option
        elif (below := f"{self._path} {word}".strip()) in self._commands:
            self._path, self._arguments = below, 0
            self._given.clear()
        else:
            self._known = self._known and not self._below()
            self._arguments += 1

    def offers(self, begun: str) -> list[Offer] | None:
        """What may be next; None if only typer knows."""
        if self._waiting is not None:
            return _values(self._waiting["of"], begun)
        if not self._known:
            return None
        if begun.startswith("-") and not self._literal:
            return [
                (name, option["help"])
                for option in self._of_command()
                if option["many"] or not self._given.intersection(option["names"])
                for name in option["names"]
            ]
        arguments = self._commands[self._path]["arguments"]
        if self._arguments < len(arguments):
            return _values(arguments[self._arguments], begun)
        if self._commands[self._path]["repeats"]:
            return _values(arguments[-1], begun)
        return self._below()

    def _of_command(self) -> list[dict[str, Any]]:
        return [self._options[number] for number in self._commands[self._path]["options"]]

    def _below(self) -> list[Offer]:
        start = f"{self._path} " if self._path else ""
        return [
            (path.removeprefix(start), entry["help"])
            for path, entry in self._commands.items()
            if path and path.startswith(start) and " " not in path.removeprefix(start)
        ]


def _values(of: Any, begun: str) -> list[Offer] | None:
    """What a value may be: words, a function of `suggestions` or an object that it makes; nothing
    that anybody knows; or typer's to say."""
    if of == "typer":
        return None
    if isinstance(of, list):
        return [(word, "") for word in of]
    if not of:
        return []
    complete = getattr(import_module("node.cli.completion.suggestions"), of["name"])
    if "parameter" in of:
        complete = complete(of["parameter"])
    found: list[Offer] = complete(begun)
    return found


def _split(line: str) -> list[str]:
    """The words of a line as a shell has them; the last may lack the end of its quotes."""
    reader = shlex.shlex(line, posix=True)
    reader.whitespace_split = True
    reader.commenters = ""
    words: list[str] = []
    try:
        words.extend(reader)
    except ValueError:
        words.append(reader.token)
    return words


def _for_zsh(found: list[Offer]) -> str:
    if not found:
        return "_files"
    lines = [
        f'"{_quoted(word)}":"{_quoted(text)}"' if text else f'"{_quoted(word)}"'
        for word, text in found
    ]
    return "_arguments '*: :((" + "\n".join(lines) + "))'"


def _quoted(text: str) -> str:
    # As typer's own answer has it: zsh evaluates this between quotes in quotes.
    for sign, written in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
        text = text.replace(sign, written)
    return text
