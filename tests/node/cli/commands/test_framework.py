"""Declarations of commands: the functions fit them, their help, and how a command begins."""

import gc
import inspect
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import click
import pytest

from parley._node.cli.commands.framework import Command, Group, Number, Option, begin, load
from parley._node.cli.commands.root import PARLEY
from parley._node.cli.commands.shared import NODE_OPTIONS
from parley._node.cli.options import SHARED
from parley._node.settings.catalogue import SETTINGS
from tests.node.cli.conftest import Parley


def commands(group: Any = PARLEY, path: str = "parley") -> Iterator[tuple[str, Command]]:
    """All commands by their words."""
    for name, found in group.commands.items():
        if isinstance(found, Group):
            yield from commands(found, f"{path} {name}")
        else:
            yield f"{path} {name}", found


def test_functions_take_what_commands_are_given() -> None:
    for path, command in commands():
        given = {each.name for each in command.params if each.expose_value}
        settings = {one.name for one in command.params if isinstance(one, Option) and one.setting}
        if command.takes_node_options:
            given = given - set(SHARED) | {"options"}
        if settings:
            given = given - settings | {"settings"}
        if command.options_class:
            each = fields(load(command.options_class))  # type: ignore[arg-type]  # a dataclass
            own = given - {"options"}
            required = {field.name for field in each if field.default is MISSING}
            assert required <= own <= {field.name for field in each}, path
            given = given - own | {"given"}
        taken = inspect.signature(load(command.target)).parameters
        assert (path, set(taken)) == (path, given)
        assert len(taken) <= 8, path


def test_options_name_settings() -> None:
    for path, command in commands():
        for each in command.params:
            if isinstance(each, Option) and each.setting:
                assert each.setting in SETTINGS, path


def test_shared_options_are_fields() -> None:
    assert tuple(each.name for each in NODE_OPTIONS) == SHARED


def test_each_command_has_an_example_that_it_takes() -> None:
    for path, command in commands():
        assert bool(command.epilog) != command.hidden, path
        for example in (command.epilog or "").splitlines()[3:]:
            line = example.rpartition("| ")[2].partition(" > ")[0]
            assert line.strip().startswith(path)
            words = shlex.split(line)[len(path.split()) :]
            command.make_context(path, words, resilient_parsing=True)


def test_help_shows_sections_and_examples(parley: Parley) -> None:
    done = parley("bus", "publish", "--help")
    assert (done.code, done.err) == (0, "")
    sections = [line for line in done.out.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections == ["Positional arguments:", "Options:", "Identity and trust:"]
    assert "Examples:" in done.out
    assert """parley bus publish sqlite:///bus.db auth.user_registered '{"username""" in done.out


def test_advanced_options_are_in_the_help_of_all(parley: Parley) -> None:
    for _ in range(2):  # --help-all doesn't affect a later --help
        brief, full = (parley("call", option).out for option in ("--help", "--help-all"))
        for name in ("kex", "signing", "hash", "cipher", "sealing", "require", "max-payload"):
            assert (f"--{name} " in brief, f"--{name} " in full) == (False, True)
        for name in ("plaintext", "network-key", "role", "resume", "loop", "uvloop", "log-level"):
            assert (f"--{name}" in brief, f"--{name}" in full) == (False, True)
        assert "--help-all" in brief
    assert "--help-all" not in parley("id", "show", "--help").out


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("relay", "--listen", "x"), "parley serve --relay"),
        (("accounts", "list"), "parley peers --accounts"),
        (("bus", "lag", "x", "y"), "parley bus groups"),
        (("journal", "key", "x"), "parley id show"),
        (("id", "path"), "parley id show"),
    ],
)
def test_old_names_are_answered_with_the_new_ones(
    parley: Parley, words: tuple[str, ...], now: str
) -> None:
    done = parley(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"' is now '{now}'.\n")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("given", ["nan", "-1", "x", ""])
def test_what_is_no_number_in_the_limits(given: str) -> None:
    with pytest.raises(click.BadParameter):
        Number(min=0)(given)
    assert Number(min=0)("1e3") == 1000


@pytest.mark.process
def test_help_imports_no_command() -> None:
    code = (
        "import sys; from parley._node.cli.commands.root import PARLEY;"
        "PARLEY(['bus', 'consume', '--help'], standalone_mode=False);"
        "print(*(m for m in sys.modules if m.startswith('parley.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--group" in done.stdout
    imported = {name for name in done.stdout.splitlines()[-1].split() if "._" in name}
    above = {"parley._node", "parley._node.cli"}
    assert {n for n in imported - above if not n.startswith("parley._node.cli.commands")} == set()


@pytest.fixture
def starting() -> Iterator[None]:
    """As `parley.__main__` has it before a command begins."""
    before = signal.getsignal(signal.SIGINT)
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
    signal.signal(signal.SIGINT, before)


def test_a_command_that_begins_is_interrupted_as_usual(starting: None) -> None:
    signal.signal(signal.SIGINT, lambda *_: None)
    begin()
    assert gc.isenabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_sigint_is_ignored_it_stays_so(starting: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
