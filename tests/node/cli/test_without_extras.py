"""Every command that needs an extra, in an environment that has only `cli`: it names the extra.

The environment is made once for all of these tests.
"""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.node.cli.processes import TIMEOUT, Finished

pytestmark = [
    pytest.mark.process,
    pytest.mark.bare,
    pytest.mark.xdist_group("bare"),
]

ROOT = Path(__file__).parents[3]

NOWHERE = "tcp://127.0.0.1:1"
HERE = ("--listen", "tcp://127.0.0.1:0")
PIPELINE = ("--journals", ".", "--tables", "tables")
REDIS = "redis://127.0.0.1:1"
# Imports the function of each command, as running it does.
IMPORT_ALL = """
from parley._node.cli.commands.framework import load
from parley._node.cli.commands.root import PARLEY

def functions(group):
    for found in group.commands.values():
        yield from functions(found) if hasattr(found, "commands") else [load(found.target)]

print(*functions(PARLEY))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of programs of an environment with the command line alone."""
    uv = os.environ.get("UV") or which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    place = tmp_path_factory.mktemp("bare") / "environment"
    python = place / "bin" / "python"
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(place)],
        ["pip", "install", "--quiet", "--python", str(python), "--editable", f"{ROOT}[cli]"],
    ):
        made = subprocess.run([uv, *command], capture_output=True, text=True, cwd=place.parent)
        if made.returncode != 0:
            pytest.skip(f"uv cannot make an environment: {made.stderr}")
    return place / "bin"


def run(bare: Path, home: Path, *command: str) -> Finished:
    """Run a program of the environment to its end."""
    done = subprocess.run(
        [str(bare / command[0]), *command[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=home,
        env={"PATH": os.environ["PATH"], "PARLEY_HOME": str(home)},
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("pipeline", ("pipeline", "run", *PIPELINE)),
        ("pipeline", ("pipeline", "run", *PIPELINE, "--rebuild")),
        ("pipeline", ("pipeline", "run", *PIPELINE, "--remote", "sc://127.0.0.1:1")),
        ("pipeline", ("pipeline", "follow", *PIPELINE)),
        ("pipeline", ("pipeline", "report", "--tables", ".", "--html", "report.html")),
        ("pipeline", ("journal", "export", ".", "--to", "parquet", "--out", "out")),
        ("metrics", ("serve", *HERE, "--metrics", "127.0.0.1:0")),
        ("console", ("serve", *HERE, "--console", "127.0.0.1:0")),
        ("discovery", ("serve", *HERE, "--announce")),
        ("discovery", ("find",)),
        ("discovery", ("send", "file", *HERE, "--announce")),
        ("discovery", ("receive", "7-crossover-clockwork")),
        ("bus", ("bus", "groups", REDIS)),
        ("bus", ("serve", *HERE, "--bus", REDIS)),
        ("fast", ("call", NOWHERE, "x", "--uvloop")),
        ("fast", ("call", NOWHERE, "x", "--hash", "blake3")),
        ("trio", ("call", NOWHERE, "x", "--loop", "trio")),
        ("trio", ("simulate", "--journals", "journals", "--loop", "trio")),
    ],
)
def test_a_command_names_its_extra(
    bare: Path, tmp_path: Path, extra: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    done = run(bare, tmp_path, "parley", *command)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("parley: ")
    assert done.err.count("\n") == 1
    assert f"extra '{extra}'" in done.err or f"extra `{extra}`" in done.err


def test_every_command_can_be_imported(bare: Path, tmp_path: Path) -> None:
    done = run(bare, tmp_path, "python", "-c", IMPORT_ALL)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("command", [("demo",), ("doctor",)])
def test_what_needs_no_extra_works(bare: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    assert run(bare, tmp_path, "parley", *command, "--json").last["event"] == "done"
