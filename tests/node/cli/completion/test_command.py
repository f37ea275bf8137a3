"""`parley completion`: the scripts, and the answers that shells get."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from docs import build_completions
from parley._crypto.identity import NodeId
from parley._node.cli.completion import answering
from parley._node.cli.completion.answering import (
    INSTRUCTION,
    LINE,
    TABLE,
    answered,
    as_lines,
    offers,
)
from parley._node.cli.completion.command import Shell
from parley._node.cli.explanations import EXPLANATIONS
from parley._node.trust.known_peers import KnownPeers
from tests.node.cli.conftest import Parley

ALICE = NodeId(b"\x01" * 32)
PLACE, ELSEWHERE = "tcp://127.0.0.1:7000", "tcp://127.0.0.1:7100"


def asked(line: str) -> dict[str, str]:
    """The variables with which a shell asks."""
    return {"_PARLEY_COMPLETE": INSTRUCTION, LINE: line}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two addresses on record."""
    known = KnownPeers(tmp_path / "known_peers")
    for name in (PLACE, ELSEWHERE, "alice"):
        known.add(ALICE, name, datetime(2026, 3, 4, tzinfo=UTC))
    return tmp_path


@pytest.fixture
def answer(home: Path, parley: Parley, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What `parley` answers to a shell, which asks by variables."""

    def answer(line: str) -> list[str]:
        for name, value in {"PARLEY_HOME": str(home), **asked(line)}.items():
            monkeypatch.setenv(name, value)
        done = parley()
        assert (done.code, done.err) == (0, "")
        return done.out.splitlines()

    return answer


@pytest.mark.parametrize("shell", list(Shell))
def test_the_script_of_each_shell(parley: Parley, shell: Shell) -> None:
    done = parley("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_PARLEY_COMPLETE={INSTRUCTION} " in done.out
    assert f"{LINE}=" in done.out
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
def test_a_shell_is_answered(
    home: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: set[str]
) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(home))
    assert {word for word, _ in offers(line) or ()} == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("parley bus dlq r", {"replay"}),
        ("parley demo f", set()),
        ("parley --v", {"--version"}),
        ("parley call --kex=x25519-", {"--kex=x25519-mlkem768"}),
        ("parley call --js", {"--json"}),
        ("parley call --json --js", set()),  # given already
        ("parley serve --listen tcp://a:1 --liste", {"--listen"}),  # may be given again
        ("parley ping --trust any --role p", {"peer"}),
        ("parley errors -- no-han", {"no-handler"}),
        ("parley errors 'no-han", {"no-handler"}),
        ("parley send a.txt b.txt tcp://127.0.0.1:71", set()),
        ("parley id show ", set()),  # a file: the shell's own business
    ],
)
def test_places_in_a_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: set[str]
) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(home))
    assert {word for word, _ in offers(line) or ()} == expected


def test_what_the_table_does_not_know_is_left_to_typer(
    answer: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert offers("parley nonsense ") is None
    table = json.loads(TABLE.read_text())
    table["commands"]["errors"]["arguments"] = ["typer"]
    (tmp_path / "table.json").write_text(json.dumps(table))
    monkeypatch.setattr(answering, "TABLE", tmp_path / "table.json")
    assert offers("parley errors deadline") is None
    assert not answered(asked("parley errors deadline"))
    assert answer("parley errors deadline") == ["deadline-exceeded"]


def test_the_table_is_that_of_the_commands() -> None:
    assert TABLE.read_text() == build_completions.build()


@pytest.mark.process
def test_to_answer_imports_no_command() -> None:
    alone = {
        "parley._node.cli.completion",
        "parley._node.cli.completion.answering",
        "parley._node.cli.completion.safety",
    }
    assert imported_by("parley bus consume --") == imported_by("parley ") == alone
    assert "typer" not in imported_by("parley call ")


def imported_by(line: str) -> set[str]:
    code = (
        "import sys; from parley._node.cli.completion.answering import offers;"
        "assert offers(sys.argv[1]) is not None;"
        "print(*(m for m in sys.modules if m.startswith(('node.cli.', 'typer', 'node.node'))))"
    )
    command = [sys.executable, "-c", code, line]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_lines_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(asked("parley errors no-han"))
    assert capsys.readouterr().out == "no-handler\n"
    assert answered(asked("parley bus t"))
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("tail\tPrint the events that are stored, and")
    assert answered(asked("parley id show "))
    assert capsys.readouterr().out == "\n"


def test_only_our_scripts_are_answered(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    for shell in ("bash", "zsh", "fish", "powershell"):
        monkeypatch.setenv("_PARLEY_COMPLETE", f"complete_{shell}")
        assert not answered({"_PARLEY_COMPLETE": f"complete_{shell}"})
        done = parley()
        assert (done.code, done.out) == (1, "")


def test_words_that_a_shell_could_expand_are_left_out() -> None:
    found = [("a", "1\t2\n3"), ("$(b)", ""), ("`c`", "d"), ("e\\", ""), ("f g", ""), ("h", "")]
    assert as_lines(found) == "a\t1 2 3\nh"


def test_every_code_is_offered(answer: Callable[..., list[str]]) -> None:
    offered = answer("parley errors ")
    assert set(offered) == {name for e in EXPLANATIONS for name in e.name.split(" / ")}
