"""Answers a shell that completes a word of `parley`, from a table and without importing commands.

A key that is pressed waits for the answer, and importing the commands takes noticeably long. The
table, `completions.json`, is made from the commands by `python -m docs.build_reference`. Words that
the table doesn't know come from typer (`command.py`).

All shells get the same plain lines, and none of their scripts evaluates any part of them.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from parley._node.cli.completion.safety import is_safe

TABLE: Final = Path(__file__).with_name("completions.json")
INSTRUCTION: Final = "complete_lines"  # the value of _PARLEY_COMPLETE in our scripts
LINE: Final = "_PARLEY_COMPLETE_LINE"  # the command line up to the cursor

Offer = tuple[str, str]  # a word, and its description


def answered(environment: Mapping[str, str]) -> bool:
    """Print the answer to a shell that set these variables; False if typer has to answer."""
    if environment.get("_PARLEY_COMPLETE") != INSTRUCTION:
        return False
    found = offers(environment.get(LINE, ""))
    if found is None:
        return False
    print(as_lines(found))
    return True


def as_lines(found: Iterable[Offer]) -> str:
    """The answer to a shell: for each word a line with the word, a tab, and the description if
    there is one. Words that a shell could expand are left out."""
    return "\n".join(
        f"{word}\t{' '.join(text.split())}" if text else word
        for word, text in found
        if is_safe(word)
    )


def offers(line: str) -> list[Offer] | None:
    """What fits at the end of a line that begins with `parley`; None if typer has to say it."""
    words, begun = words_of(line)
    place = _Place(json.loads(TABLE.read_text("utf-8")))
    for word in words:
        place.take(word)
    option = ""
    if begun.startswith("-") and "=" in begun:
        name, equals, begun = begun.partition("=")
        place.take(name)
        option = name + equals
    found = place.offers(begun)
    if found is None:
        return None
    return [(option + word, text) for word, text in found if word.startswith(begun)]


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
    complete = getattr(import_module("parley._node.cli.completion.suggestions"), of["name"])
    if "parameter" in of:
        complete = complete(of["parameter"])
    found: list[Offer] = complete(begun)
    return found


def words_of(line: str) -> tuple[list[str], str]:
    """Split a line as a shell does, and return the words between `parley` and the last word, and
    the last word. It is empty after a blank, and may lack the end of its quotes."""
    reader = shlex.shlex(line, posix=True)
    reader.whitespace_split = True
    reader.commenters = ""
    words: list[str] = []
    try:
        words.extend(reader)
    except ValueError:
        words.append(reader.token)
    del words[:1]
    begun = words.pop() if words and not line[-1].isspace() else ""
    return words, begun
