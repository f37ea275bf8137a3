"""Each example runs as its reader would run it, and prints what it promises.

One rule: an example without an entry here fails, so that none is left unrun.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# What each prints, as a pattern for all of it.
PRINTS = {
    "01_echo.py": r"hello\n",
    "02_file.py": r"02_file\.py: \d+ bytes, sha256 equal\n",
}


def _run(name: str, directory: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *args],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_run() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PRINTS)


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    assert re.fullmatch(PRINTS[name], _run(name, tmp_path))
    assert list(tmp_path.iterdir()) == []  # and leaves nothing behind


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_an_example_says_how_it_is_run(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert f"python examples/{name}" in text.split('"""')[1]


def test_a_file_of_ones_own_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "own"
    file.write_bytes(bytes(range(256)) * 4000)
    assert _run("02_file.py", tmp_path, str(file)) == "own: 1024000 bytes, sha256 equal\n"


def test_an_empty_file_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    assert _run("02_file.py", tmp_path, str(file)) == "empty: 0 bytes, sha256 equal\n"
