"""Helps: sentences and examples are those of the commands, and to list them imports none."""

import inspect
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from parley._node.cli.helps import HELPS
from parley._node.cli.main import COMMANDS, Family, app
from tests.node.cli.conftest import Parley


def everything() -> Iterator[tuple[str, Any]]:
    """All commands and families, by their words."""

    def below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        commands: Any = getattr(command, "commands", {})
        for name in commands:
            found = commands[name]
            yield f"{path} {name}".strip(), found
            yield from below(found, f"{path} {name}".strip())

    return below(typer.main.get_command(app), "")


def test_each_command_says_what_its_function_says() -> None:
    assert list(HELPS) == [path for path, _ in everything()]
    for path, command in everything():
        first = inspect.cleandoc(command.help).partition("\n\n")[0]
        assert (path, HELPS[path].help) == (path, " ".join(first.split()))


def test_each_help_has_an_example_that_the_command_takes() -> None:
    group = typer.main.get_command(app)
    for path, command in everything():
        examples = HELPS[path].examples
        # A family has those of its commands.
        alone = isinstance(_entry(path), Family) and not getattr(_entry(path), "alone", "")
        assert bool(examples) == (not alone and not command.hidden), path
        for example in examples:
            assert example in command.epilog.replace(r"\[", "[")
            line = example.rpartition("| ")[2].partition(" > ")[0]
            program, *words = shlex.split(line)
            assert (program, words[: len(path.split())]) == ("parley", path.split()[: len(words)])
            context, rest = group.make_context("parley", list(words)), words
            while rest and hasattr(context.command, "resolve_command"):
                _, found, arguments = context.command.resolve_command(context, rest)
                context = found.make_context(found.name, list(arguments), parent=context)
                rest = [*context._protected_args, *context.args]


def _entry(path: str) -> object:
    found: Any = COMMANDS
    for word in path.split():
        found = found.commands[word] if isinstance(found, Family) else found[word]
    return found


def test_a_help_ends_with_examples(parley: Parley) -> None:
    done = parley("bus", "publish", "--help")
    assert "For example:" in done.out
    assert "<" not in done.out.partition("For example:")[0]  # no types of Python's
    assert """parley bus publish sqlite:///bus.db auth.user_registered '{"username""" in done.out


@pytest.mark.parametrize("path", [(), ("bus",), ("bus", "dlq")])
def test_so_does_that_of_a_family(parley: Parley, path: tuple[str, ...]) -> None:
    examples = parley(*path, "--help").out.partition("For example:")[2].splitlines()
    shown = [line.strip() for line in examples if line.strip()]
    assert 1 <= len(shown) <= 3
    assert {line for entry in HELPS.values() for line in entry.examples} >= set(shown)


def test_values_have_words_of_people(parley: Parley) -> None:
    lines = parley("simulate", "--help").out.splitlines()
    shown = {words[1]: words[2:4] for words in map(str.split, lines) if len(words) > 3}
    assert shown["--nodes"] == ["NUMBER", "[2<=x<=1000]"]
    assert shown["--auditor"][0] == "KEY"
    assert shown["--traffic"] == ["calls", "|"]
    assert shown["--one-suite"][0] == "All"  # what has no value shows none


@pytest.mark.process
def test_a_list_of_commands_imports_none() -> None:
    code = (
        "import sys; from parley._node.cli.main import app;"
        "app(['bus', '--help'], standalone_mode=False);"
        "print(*(m for m in sys.modules if "
        "m.startswith(('parley._node.', 'parley._crypto.', 'pydantic'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "consume" in done.stdout
    imported = set(done.stdout.splitlines()[-1].split())
    assert (
        not {
            "parley._node.node",
            "parley._node.cli.bus.publish",
            "parley._crypto.identity",
            "pydantic",
        }
        & imported
    )
