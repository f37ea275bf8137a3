"""`parley completion`: the scripts, and the answers that shells get."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley.__main__ import main
from parley._crypto.identity import NodeId
from parley._node.cli.completion.responder import INSTRUCTION, LINE, VARIABLE, format_lines
from parley._node.cli.error_catalogue import EXPLANATIONS
from parley._node.trust.known_peers import KnownPeers
from tests.node.cli.conftest import Parley

ALICE = NodeId(b"\x01" * 32)
PLACE, ELSEWHERE = "tcp://127.0.0.1:7000", "tcp://127.0.0.1:7100"
Answer = Callable[..., list[str]]


@pytest.fixture
def answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Answer:
    """What `parley` prints for a shell, which sets variables; two addresses are on record."""
    known = KnownPeers(tmp_path / "known_peers")
    for name in (PLACE, ELSEWHERE, "alice"):
        known.add(ALICE, name, datetime(2026, 3, 4, tzinfo=UTC))
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path))

    def answer(line: str, instruction: str = INSTRUCTION) -> list[str]:
        monkeypatch.setenv(VARIABLE, instruction)
        monkeypatch.setenv(LINE, line)
        main()
        out, err = capsys.readouterr()
        assert err == ""
        return out.splitlines()

    return answer


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(parley: Parley, shell: str) -> None:
    done = parley("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"{VARIABLE}={INSTRUCTION} " in done.out
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
        ("parley demo-", set()),  # hidden
        ("parley ping t", {PLACE, ELSEWHERE}),
        ("parley call --kex x25519-", {"x25519-mlkem768"}),
        ("parley call --kex=x25519-", {"--kex=x25519-mlkem768"}),
        ("parley call --cipher aes-256-gcm,x", {"aes-256-gcm,xchacha20-poly1305"}),
        ("parley serve --require sha256,sha5", {"sha256,sha512"}),
        ("parley serve --role c", {"client"}),
        ("parley serve --named-flavour t", {"typed"}),
        ("parley id new --algorithm ml", {"ml-dsa-65"}),
        ("parley id pa", {"passwd"}),
        ("parley id passwd --pass", {"--passphrase-file"}),
        ("parley id passwd --n", {"--new-passphrase-file", "--no-passphrase"}),
        ("parley peers forget al", {"alice"}),
        ("parley errors deadline", {"deadline-exceeded"}),
        ("parley errors -- no-han", {"no-handler"}),
        ("parley errors 'no-han", {"no-handler"}),
        ("parley completion f", {"fish"}),
        ("parley call --netw", {"--network-key"}),
        ("parley bus dlq r", {"replay"}),
        ("parley demo f", set()),
        ("parley --v", {"--version"}),
        ("parley call --js", {"--json"}),
        ("parley call --help-all --js", {"--json"}),
        ("parley --version er", {"errors"}),
        ("parley call --json --js", set()),  # given already
        ("parley serve --listen tcp://a:1 --liste", {"--listen"}),  # may be given again
        ("parley ping --trust any --role p", {"peer"}),
        ("parley send a.txt b.txt tcp://127.0.0.1:71", set()),
        ("parley id show ", set()),  # a file: the shell's own business
    ],
)
def test_a_shell_is_answered(answer: Answer, line: str, expected: set[str]) -> None:
    assert {word.partition("\t")[0] for word in answer(line) if word} == expected


def test_words_have_descriptions(answer: Answer) -> None:
    assert answer("parley bus t")[0].startswith("tail\tPrint the stored events of a stream, and")
    assert answer("parley --v") == ["--version\tShow the version."]


def test_only_our_scripts_are_answered(answer: Answer) -> None:
    for instruction in ("complete_bash", "bash_complete", "zsh_source", ""):
        assert answer("parley pin", instruction) == []


def test_words_that_a_shell_could_expand_are_left_out() -> None:
    found = [("a", "1\t2\n3"), ("$(b)", ""), ("`c`", "d"), ("e\\", ""), ("f g", ""), ("h", "")]
    assert format_lines(found) == "a\t1 2 3\nh"


def test_every_code_is_offered(answer: Answer) -> None:
    assert set(answer("parley errors ")) == {n for e in EXPLANATIONS for n in e.name.split(" / ")}
