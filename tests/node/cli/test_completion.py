"""`parley completion`: the scripts, and the answers that shells get: in this process, and by a
real bash."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crypto.identity import NodeId
from node.cli.completion import Shell
from node.cli.explanations import EXPLANATIONS
from node.trust.known_peers import KnownPeers
from tests.node.cli.conftest import Parley

ALICE = NodeId(b"\x01" * 32)
PLACE, ELSEWHERE = "tcp://127.0.0.1:7000", "tcp://127.0.0.1:7100"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two addresses on record, and `parley` as a shell finds it."""
    known = KnownPeers(tmp_path / "known_peers")
    for name in (PLACE, ELSEWHERE, "alice"):
        known.add(ALICE, name, datetime(2026, 3, 4, tzinfo=UTC))
    script = tmp_path / "parley"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parley "$@"\n')
    script.chmod(0o700)
    return tmp_path


@pytest.fixture
def answer(home: Path, parley: Parley, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What `parley` answers to a shell, which asks by variables."""

    def answer(**variables: str) -> list[str]:
        for name, value in {"PARLEY_HOME": str(home), **variables}.items():
            monkeypatch.setenv(name, value)
        done = parley()
        assert (done.code, done.err) == (0, "")
        return done.out.splitlines()

    return answer


@pytest.mark.parametrize("shell", list(Shell))
def test_the_script_of_each_shell(parley: Parley, shell: Shell) -> None:
    done = parley("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_PARLEY_COMPLETE=complete_" in done.out
    assert "parley" in done.out.splitlines()[-1]


def test_no_other_shell(parley: Parley) -> None:
    done = parley("completion", "tcsh")
    assert done.code == 2
    assert "'bash', 'zsh', 'fish'" in done.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("parley pin", {"ping"}),
        ("parley ping t", {PLACE, ELSEWHERE}),
        ("parley call --kex x25519-", {"x25519-mlkem768"}),
        ("parley call --cipher aes-256-gcm,x", {"aes-256-gcm,xchacha20-poly1305"}),
        ("parley serve --require sha256,sha5", {"sha256,sha512"}),
        ("parley serve --role c", {"client"}),
        ("parley serve --named-flavour t", {"typed"}),
        ("parley id new --algorithm ml", {"ml-dsa-65"}),
        ("parley peers forget al", {"alice"}),
        ("parley errors deadline", {"deadline-exceeded"}),
        ("parley completion f", {"fish"}),
        ("parley call --netw", {"--network-key"}),
    ],
)
def test_bash_is_answered(answer: Callable[..., list[str]], line: str, expected: set[str]) -> None:
    words = str(len(line.split()) - 1)
    asked = {"COMP_WORDS": line, "COMP_CWORD": words}
    assert set(answer(_PARLEY_COMPLETE="complete_bash", **asked)) == expected


def test_zsh_and_fish_are_answered(answer: Callable[..., list[str]]) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "parley errors no-han"}
    assert "no-handler" in answer(_PARLEY_COMPLETE="complete_zsh", **asked)[0]
    asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    assert answer(_PARLEY_COMPLETE="complete_fish", **asked) == ["no-handler"]


def test_every_code_is_offered(answer: Callable[..., list[str]]) -> None:
    asked = {"COMP_WORDS": "parley errors ", "COMP_CWORD": "2"}
    offered = answer(_PARLEY_COMPLETE="complete_bash", **asked)
    assert set(offered) == {name for e in EXPLANATIONS for name in e.name.split(" / ")}


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("parley ping ", ["@alice", PLACE, ELSEWHERE]),
        ("parley ping @al", ["alice"]),  # and what stands after an @ at the beginning
        # Bash replaces what stands after the last colon, and that only.
        ("parley ping tcp:", [PLACE[4:], ELSEWHERE[4:]]),
        ("parley ping tcp://127.0.0.1:71", ["7100"]),
        (f"parley ping {PLACE}#", [f"7000#{ALICE}"]),
        ("parley ping --kex=x25519,", ["x25519,x25519-mlkem768"]),
        ("parley ping nowhere", []),
    ],
)
def test_a_real_bash(home: Path, line: str, expected: list[str]) -> None:
    script = """
        source <(parley completion bash)
        [[ $(complete -p parley) == *"-F _parley_completion parley" ]] || exit 1
        COMP_LINE=$1 COMP_POINT=${#1}
        _parley_completion parley
        (( ${#COMPREPLY[@]} == 0 )) || printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{home}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", line],
        env={**os.environ, "PATH": path, "PARLEY_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=25,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == expected
