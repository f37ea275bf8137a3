"""The start of `parley`, in separate processes because the tests interrupt it."""

import os
import signal
import subprocess
import sys

import pytest

# Sends the process a signal when it begins to import a module.
PROGRAM = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupts(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == WHERE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(NUMBER))

import parley.__main__
NUMBER, WHERE, *arguments = sys.argv[1:]
sys.meta_path.insert(0, Interrupts())
sys.argv = ["parley", *arguments]
parley.__main__.main()
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("parley._node", ""),
        ("cryptography", ""),
        ("parley._node.cli.exit_codes", ""),
        ("parley._node.cli.ping", ""),  # while the command is looked up
        ("anyio._backends._asyncio", "parley: interrupted by SIGINT\n"),  # while the command runs
    ],
)
def test_an_interrupt_is_quiet_from_the_first_import_on(where: str, said: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            str(int(signal.SIGINT)),
            where,
            "ping",
            "tcp://127.0.0.1:1",
        ],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)


@pytest.mark.process
def test_an_interrupt_that_is_ignored_stays_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(signal.SIGINT)), "parley._node", "--version"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        env={**os.environ, "PARLEY_HOME": os.devnull},
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
@pytest.mark.parametrize("command", ["serve", "run"])
def test_sighup_does_not_stop_a_starting_server(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(signal.SIGHUP)), "parley._node", command, "--help"],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
