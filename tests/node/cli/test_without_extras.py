"""Every command that needs an extra, in an environment that has only `cli`: it names the extra.

The environment is made once for all of these tests.
"""

import json
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


# The extra that each command needs.
COMMANDS = (
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
)
# Imports the functions of all commands and then runs each command in a forked process.
RUN_ALL = """
import json, os, sys
from parley._node.cli.commands.framework import load
from parley._node.cli.commands.root import PARLEY
from parley._node.cli.main import main

def load_all(group):
    for found in group.commands.values():
        load_all(found) if hasattr(found, "commands") else load(found.target)

load_all(PARLEY)
codes = []
for number, command in enumerate(json.loads(sys.argv[1])):
    if not os.fork():
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{number}.{name}", os.O_WRONLY | os.O_CREAT), descriptor)
        sys.argv[:] = ["parley", *command]
        main()
        os._exit(99)  # main() has to exit by itself
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(json.dumps(codes))
"""


def test_a_command_names_its_extra(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    commands = json.dumps([command for _, command in COMMANDS])
    done = run(bare, tmp_path, "python", "-c", RUN_ALL, commands)
    assert (done.code, done.err) == (0, "")
    codes = json.loads(done.out)
    for number, (extra, command) in enumerate(COMMANDS):
        err = (tmp_path / f"{number}.err").read_text()
        assert (codes[number], (tmp_path / f"{number}.out").read_text()) == (2, ""), command
        assert err.startswith("parley: "), command
        assert err.count("\n") == 1, command
        assert f"extra '{extra}'" in err or f"extra `{extra}`" in err, command


@pytest.mark.parametrize("command", [("demo",), ("doctor",)])
def test_what_needs_no_extra_works(bare: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    assert run(bare, tmp_path, "parley", *command, "--json").last["event"] == "done"
