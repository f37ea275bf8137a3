"""`parley id passwd`: with files and on a terminal, refused changes, and killed processes."""

import json
import os
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._crypto.keyfile import (
    PassphraseCost,
    describe_keyfile,
    load_auditor_key,
    load_identity,
    save_auditor_key,
    save_identity,
)
from parley._node.cli.default_identity import default_key_path
from parley._node.cli.main import main
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes
from tests.node.cli.terminals import Terminal, at_terminal

ROOT: Final = Path(__file__).parents[3]
CHEAP: Final = PassphraseCost(passes=1, memory_kib=8)
OLD, NEW = b"correct horse", b"battery staple"
IDENTITY: Final = Identity.create()
REMARK: Final = "copies and backups of the file keep the old passphrase: delete or replace them\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A key file under the old passphrase, alone in its directory."""
    path = tmp_path / "keys" / "node.key"
    path.parent.mkdir()
    save_identity(path, IDENTITY, OLD, cost=CHEAP)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The options with a file of the old passphrase, and one of the new passphrase."""
    options = []
    for option, passphrase in (("--passphrase-file", OLD), ("--new-passphrase-file", NEW)):
        file = tmp_path / option.strip("-")
        file.touch(0o600)
        file.write_bytes(passphrase + b"\n")
        options += [option, str(file)]
    return options


def test_with_files(parley: Parley, path: Path, files: list[str]) -> None:
    done = parley("id", "passwd", str(path), *files)
    assert done == (0, f"changed the passphrase of {path}\n", REMARK)
    assert load_identity(path, NEW).node_id == IDENTITY.node_id
    assert os.listdir(path.parent) == ["node.key"]


def test_as_json(parley: Parley, path: Path, files: list[str]) -> None:
    done = parley("id", "passwd", str(path), *files, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [{"event": "done", "path": str(path), "encrypted": True}]


def test_the_passphrase_is_removed_only_on_request(
    parley: Parley, path: Path, files: list[str]
) -> None:
    refused = parley("id", "passwd", str(path), *files[:2])
    assert refused == (
        2,
        "",
        f"parley: cannot change the passphrase of '{path}': there is no terminal to ask for the "
        "new one; give --new-passphrase-file or --no-passphrase\n",
    )
    assert load_identity(path, OLD).node_id == IDENTITY.node_id
    done = parley("id", "passwd", str(path), *files[:2], "--no-passphrase")
    assert done == (0, f"removed the passphrase of {path}\n", REMARK)
    assert not describe_keyfile(path)
    assert load_identity(path).node_id == IDENTITY.node_id


def test_of_an_auditor(parley: Parley, tmp_path: Path, files: list[str]) -> None:
    path, key = tmp_path / "auditor.key", AuditorPrivateKey.create()
    save_auditor_key(path, key, OLD, cost=CHEAP)
    assert parley("id", "passwd", str(path), *files).code == 0
    assert load_auditor_key(path, NEW).public == key.public


def test_of_the_own_key(parley: Parley, files: list[str]) -> None:
    path = default_key_path()
    absent = parley("id", "passwd", *files)
    assert absent == (
        6,
        "",
        f"parley: cannot change the passphrase of your key '{path}': it does not exist yet; create "
        "it with: parley id new\n",
    )
    path.parent.mkdir()
    save_identity(path, IDENTITY, OLD, cost=CHEAP)
    done = parley("id", "passwd", *files)
    assert done == (0, f"changed the passphrase of {path}\n", REMARK)
    shown = parley("id", "show", "--passphrase-file", files[3], "--json")
    assert (shown.last["node_id"], shown.last["encrypted"]) == (str(IDENTITY.node_id), True)


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_refused_changes(
    parley: Parley, path: Path, files: list[str], as_json: Sequence[str]
) -> None:
    before, link = path.read_bytes(), path.parent / "link"
    link.symlink_to(path.name)
    old, new = files[1], files[3]
    for code, arguments, text in (
        (6, [str(path), "--passphrase-file", new], "the passphrase is wrong, or the file was"),
        (6, [str(path)], "it is encrypted; give --passphrase-file"),
        (6, [str(link), "--passphrase-file", old], "it is a symbolic link; give the path of the"),
        (6, [f"{path}x", "--passphrase-file", old], f"cannot open the key file '{path}x': No such"),
        (6, [old, "--passphrase-file", old], "it is not a key file of version 1"),
        (6, [str(path), "--passphrase-file", f"{old}x"], f"cannot read '{old}x': No such file"),
        (2, [str(path), "--no-passphrase"], "with --no-passphrase: leave one of the options out"),
    ):
        done = parley("id", "passwd", *arguments, "--new-passphrase-file", new, *as_json)
        assert done.code == code
        assert text in (done.last["text"] if as_json else done.err)
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == ["link", "node.key"]


def test_passphrases_are_never_arguments_and_never_shown(
    parley: Parley, path: Path, files: list[str]
) -> None:
    assert parley("id", "passwd", str(path), OLD.decode(), NEW.decode()).code == 2
    help_text = parley("id", "passwd", "--help").out
    assert [line for line in help_text.splitlines() if "--" in line and " TEXT " in line] == []
    for option in ([], ["--json"]):
        done = parley("id", "passwd", str(path), *files, *option)
        assert OLD.decode() not in done.out + done.err
        assert NEW.decode() not in done.out + done.err
        path.unlink()
        save_identity(path, IDENTITY, OLD, cost=CHEAP)


# On a terminal


def answer(terminal: Terminal, typed: list[str]) -> None:
    """Type a line after each question."""
    for number, line in enumerate(typed, 1):
        terminal.wait_for(": ", number)
        terminal.type(line)


def at_questions(
    monkeypatch: pytest.MonkeyPatch, path: Path, *options: str, typed: list[str]
) -> tuple[object, str]:
    """Run the command with these answers; return its exit code and all that the terminal showed."""
    monkeypatch.setattr(sys, "argv", ["parley", "id", "passwd", str(path), *options])
    with at_terminal() as terminal:
        typist = threading.Thread(target=answer, args=(terminal, typed))
        typist.start()
        with pytest.raises(SystemExit) as ended:
            main()
        typist.join()
        assert termios.tcgetattr(sys.stdin)[3] & termios.ECHO
        return ended.value.code, terminal.read()


def test_passphrases_are_asked_for_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    typed = [f"{each.decode()}\n" for each in (OLD, NEW, NEW)]
    code, shown = at_questions(monkeypatch, path, typed=typed)
    assert (code, shown) == (
        0,
        f"Present passphrase of {path}: \nNew passphrase of {path}: \n"
        f"The new passphrase again: \n{REMARK}",
    )
    assert load_identity(path, NEW).node_id == IDENTITY.node_id


def test_only_missing_passphrases_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, path: Path, files: list[str]
) -> None:
    code, shown = at_questions(monkeypatch, path, *files[2:], typed=[f"{OLD.decode()}\n"])
    assert (code, shown) == (0, f"Present passphrase of {path}: \n{REMARK}")
    typed = ["grün, ungewöhnlich\n"] * 2
    code, shown = at_questions(monkeypatch, path, "--passphrase-file", files[3], typed=typed)
    assert code == 0
    assert "Present" not in shown
    assert load_identity(path, "grün, ungewöhnlich".encode()).node_id == IDENTITY.node_id


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ([f"{OLD.decode()}\n", "\n"], "the new one is empty; give --no-passphrase to remove it"),
        ([f"{OLD.decode()}\n", "one\n", "two\n"], "the two new ones differ; try again"),
        (["wrong\n", "one\n", "one\n"], "the passphrase is wrong, or the file was altered"),
        (["\x04"], "cannot read the passphrase from the terminal: expected one line"),
        (["half\x04\x04"], "cannot read the passphrase from the terminal: expected one line"),
        (["x" * 1_024 + "\n"], "expected one line of less than 1,024 bytes"),
    ],
)
def test_wrong_answers(
    monkeypatch: pytest.MonkeyPatch, path: Path, typed: list[str], text: str
) -> None:
    before = path.read_bytes()
    code, shown = at_questions(monkeypatch, path, typed=typed)
    assert code == 6
    assert text in shown
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["node.key"]


# Other processes


def test_of_many_processes_one_changes_it(
    processes: Processes, path: Path, files: list[str], tmp_path: Path
) -> None:
    new = [tmp_path / f"new-{number}" for number in range(4)]
    for each in new:
        each.touch(0o600)
        each.write_text(each.name)
    running = [
        processes.start("id", "passwd", str(path), *files[:2], "--new-passphrase-file", str(each))
        for each in new
    ]
    codes = [each.finish().code for each in running]
    assert sorted(codes) == [0, 6, 6, 6]
    changed = new[codes.index(0)].name.encode()
    assert load_identity(path, changed).node_id == IDENTITY.node_id
    assert os.listdir(path.parent) == ["node.key"]


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="ptrace counts system calls on Linux only")
@pytest.mark.parametrize("option", [(), ("--no-passphrase",)], ids=["change", "remove"])
@pytest.mark.parametrize("kind", ["identity", "recovery", "auditor"])
def test_a_process_killed_at_any_system_call(
    tmp_path: Path, kind: str, option: Sequence[str]
) -> None:
    command = [sys.executable, "-m", "tests.node.cli.killed_passwd", str(tmp_path), kind, *option]
    environment = {**os.environ, "PARLEY_HOME": str(tmp_path / "home")}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert counts["old"] + counts["new"] == counts["kills"] > 50
    assert min(counts["old"], counts["new"], counts["leftovers"]) > 0
