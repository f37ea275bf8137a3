"""Lightbus is searched in three places, in order, and each reports why it is missing."""

from pathlib import Path

import pytest

from tests.interop.lightbus_environment import NotAvailableError, lightbus_command


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("UV", raising=False)
    return tmp_path


def write(program: Path, script: str) -> None:
    """Write a program that runs a line of shell."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_nothing_is_tried_without_uv(programs: Path) -> None:
    with pytest.raises(NotAvailableError, match="there is no uv"):
        lightbus_command.__wrapped__()


def test_all_three_are_tried_and_what_they_said_is_told(programs: Path) -> None:
    write(programs / "uv", "echo no network >&2; exit 2")
    write(programs / "python3.9", "echo a shim without a Python >&2; exit 127")
    write(programs / "pyenv", f"echo {programs}")
    with pytest.raises(NotAvailableError) as refused:
        lightbus_command.__wrapped__()
    assert str(refused.value) == (
        "python3.9: a shim without a Python; "
        f"pyenv: there is no {programs}/versions/3.9*/bin/python; "
        "uv's own: no network"
    )


def test_the_first_that_works_is_taken(programs: Path) -> None:
    write(programs / "python3.9", "exit 1")
    write(programs / "pyenv", f"echo {programs}")
    write(programs / "versions" / "3.9.1" / "bin" / "python", "echo /a/python")
    write(programs / "versions" / "3.9.2" / "bin" / "python", "exit 1")
    write(programs / "uv", f'echo "$@" > {programs}/asked')
    command = lightbus_command.__wrapped__()
    assert command[0] == str(programs / "uv")
    assert " ".join(command[1:]) == (
        "run --offline --no-project --python /a/python --with lightbus==1.1.2 "
        "--with aioredis==1.3.1 --with setuptools<80"
    )
    asked = (programs / "asked").read_text()
    assert asked.startswith("run --no-project --python /a/python")
    assert asked.endswith("python -c import lightbus\n")
