"""Tests of tests/fuzz/runner.py and its command: a bug is found, reported and shown again."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.__main__ import FOUND, GOOD, UNABLE, main
from tests.fuzz.targets import PLANTED, load

ROOT = Path(__file__).parents[2]
# Without a fuzzer, its command must report that.
HERE = find_spec("atheris") is not None


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.mark.process
def test_a_planted_bug_is_found_and_can_be_met_again(tmp_path: Path) -> None:
    before = sorted((ROOT / "tests" / "fuzz").rglob("*[!c]"))
    done = fuzz(PLANTED, "--seconds", "20")
    assert done.returncode == (FOUND if HERE else UNABLE), done.stdout + done.stderr
    assert sorted((ROOT / "tests" / "fuzz").rglob("*[!c]")) == before
    if not HERE:
        assert "atheris is not there" in done.stdout
        return
    assert "FOUND by planted: it raises" in done.stdout
    assert "RuntimeError: the planted bug" in done.stdout
    (text,) = re.findall(r"^input: ([0-9a-f]+)$", done.stdout, re.MULTILINE)
    file = tmp_path / "input"
    file.write_bytes(bytes.fromhex(text))
    with pytest.raises(RuntimeError, match="the planted bug"):
        main([PLANTED, "--input", str(file)])


@pytest.mark.process
def test_where_there_is_no_bug_the_command_says_so(tmp_path: Path) -> None:
    done = fuzz("decoder", "--seconds", "1", "--corpus", str(tmp_path))
    assert done.returncode == (GOOD if HERE else UNABLE), done.stdout + done.stderr
    assert (re.search(r"^decoder +[\d,]+ inputs .* 0 found$", done.stdout) is not None) == HERE
    assert any((tmp_path / "decoder").iterdir()) == HERE if HERE else not any(tmp_path.iterdir())


def test_one_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"\x00\xa0")
    assert main(["decoder", "--input", str(file)]) == GOOD
    assert capsys.readouterr().out == "decoder takes it\n"


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["--input", "x"], ["--minimise", "x"], ["frames", "--seconds", "x"]]
)
def test_a_wrong_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "error:" in capsys.readouterr().err


def test_a_bug_leaves_the_target() -> None:
    with pytest.raises(RuntimeError, match="planted"):
        load(PLANTED).run(bytes.fromhex("a10700"))
