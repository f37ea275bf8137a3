"""The command `parley`: help, version, usage errors, and unexpected exceptions."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from parley._node.cli import identity as identity_commands
from parley._node.cli import ping as ping_command
from parley._node.errors import PeerClosedError
from tests.node.cli.conftest import Parley
from tests.sweep import sweep

DIALS = "tcp://127.0.0.1:1"
SHARED = (*("identity", "passphrase-file", "trust", "json"),)


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("serve", ["--listen", "--config", "--relay", "--bridge", "--allow-insecure"]),
        ("call", ["--data-json", "--timeout", "ADDR", "TOPIC", "DATA", "#NODEID"]),
        ("ping", ["--count", "--interval", "--watch", "ADDR"]),
        ("sub", ["ADDR", "TOPIC", "--count", "--data", "--data-json", "--give-up-after"]),
        (
            "pub",
            [
                "TOPIC",
                "--listen",
                "--wait",
                "--json-lines",
                "--slow",
                "--buffer",
                "--patience",
                "--keep",
            ],
        ),
        ("doctor", ["--count", "ADDR"]),
    ],
)
def test_help_shows_every_shared_option(parley: Parley, command: str, own: list[str]) -> None:
    done = parley(command, "--help")
    assert done.code == 0
    assert done.err == ""
    for option in [*(f"--{name}" for name in SHARED), *own]:
        assert option in done.out, option


@sweep(
    ("command", "own"),
    [
        ([], ["id", "serve", "call", "ping", "demo", "--version"]),
        ([], ["peers", "errors", "doctor", "completion"]),
        (["peers"], ["list", "forget", "rename"]),
        (["peers", "list"], ["--known-peers", "FILE", "--json"]),
        (["peers", "forget"], ["ID-OR-NAME", "--known-peers", "--json"]),
        (["peers", "rename"], ["ID-OR-NAME", "NEW-NAME", "--known-peers", "--json"]),
        (["errors"], ["CODE", "--json"]),
        (["completion"], ["bash", "zsh", "fish"]),
        (["id"], ["new", "show"]),
        (["id", "new"], ["PATH", "--algorithm", "--passphrase-file", "--json"]),
        (["id", "show"], ["PATH", "--passphrase-file", "--json"]),
        (["demo"], ["--json"]),
        (["simulate"], ["--journals", "--nodes", "--seed", "--json"]),
    ],
)
def test_help_of_the_others(parley: Parley, command: list[str], own: list[str]) -> None:
    done = parley(*command, "--help")
    assert done.code == 0
    for word in own:
        assert word in done.out, word
    assert "responder" not in done.out  # the demo's other process is a hidden command


def test_commands_are_grouped(parley: Parley) -> None:
    lines = parley("--help").out.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "Try:", "Connect:", "Serve:", "Data:", "Set up:"]


def test_the_script_is_this_program() -> None:
    (script,) = entry_points(group="console_scripts", name="parley")
    assert script.value == "parley.__main__:main"


def test_version(parley: Parley) -> None:
    assert parley("--version") == (0, "0.1.0\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'."),
        (["call"], "Missing argument 'ADDR'."),
        (["call", DIALS], "Missing argument 'TOPIC'."),
        (["call", DIALS, "t", "a", "b"], "Got unexpected extra argument (b)"),
        (["call", DIALS, "t", "--nonsense"], "No such option '--nonsense'."),
        (["ping", DIALS, "--count", "many"], "Invalid value for '--count'"),
        (["ping", DIALS, "--count", "0"], "Invalid value for '--count'"),
        (["ping", DIALS, "--interval", "-1"], "Invalid value for '--interval'"),
        (["ping", DIALS, "--interval", "nan"], "Invalid value for '--interval'"),
        (["call", DIALS, "t", "--max-payload", "1k"], "Invalid value for '--max-payload'"),
    ],
)
def test_a_usage_error_is_one_sentence(parley: Parley, arguments: list[str], sentence: str) -> None:
    done = parley(*arguments)
    assert done.code == 2
    assert done.err.startswith(f"parley: {sentence}")
    assert done.err.count("\n") == 1
    assert done.out == ""
    as_json = parley(*arguments, "--json")
    assert as_json.code == 2
    assert [line["event"] for line in as_json.lines] == ["error"]
    assert as_json.last["code"] == 2
    assert as_json.last["text"].startswith(sentence)


@pytest.mark.parametrize("command", [[], ["id"], ["peers"]])
def test_no_command_shows_the_help(parley: Parley, command: list[str]) -> None:
    done = parley(*command)
    assert done.code == 2
    assert "Options:" in done.out + done.err
    assert done.err.endswith("parley: a command is missing\n")


def test_json_after_two_dashes_is_data(parley: Parley) -> None:
    done = parley("call", "nowhere", "t", "--", "--json")
    assert (done.code, done.out) == (2, "")


class BugError(Exception):
    pass


def test_a_bug_says_that_it_is_one(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BugError("oops")

    monkeypatch.setattr(identity_commands, "save_identity", fail)
    done = parley("id", "new", "key", "--json")
    assert done.code == 1
    assert done.last["name"] == "internal-error"
    assert "oops" in done.last["text"]


@pytest.mark.parametrize(
    ("errors", "name"),
    [
        ([PeerClosedError(1)], "going-away"),
        ([PeerClosedError(1), PeerClosedError(1)], "going-away"),
        ([ExceptionGroup("", [PeerClosedError(1)]), PeerClosedError(2)], "going-away"),
        ([PeerClosedError(1), BugError("oops")], "internal-error"),
    ],
)
def test_the_cause_inside_task_groups(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, errors: list[Exception], name: str
) -> None:
    def fail(*_: object) -> None:
        raise ExceptionGroup("unhandled", errors)

    monkeypatch.setattr(ping_command, "run", fail)
    done = parley("ping", DIALS, "--json")
    assert (done.code, done.last["name"]) == (1, name)


def test_an_interrupted_command_says_so(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ping_command, "run", interrupt)
    assert parley("ping", DIALS) == (130, "", "parley: interrupted by SIGINT\n")
    assert parley("ping", DIALS, "--json").last["code"] == 130


@pytest.mark.process
def test_a_command_imports_itself_alone() -> None:
    code = (
        "import sys; from parley._node.cli.commands.root import PARLEY;"
        "PARLEY(['completion', 'zsh'], standalone_mode=False);"
        "print(*(m for m in sys.modules if m.startswith('parley._node.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    of_commands = {name for name in imported if name.startswith("parley._node.cli.commands")}
    assert imported - of_commands == {
        f"parley._node.cli.{name}" for name in ("completion", "completion.scripts")
    }
