"""`parley serve --journal`: records, recovery, output, and a full disk."""

import resource
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._crypto.keyfile import save_auditor_key, save_identity
from parley._node.cli.output import Output
from parley._node.cli.serve.command import watch_journal
from parley._node.journal.errors import JournalFailedError
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes


@pytest.fixture
def auditor(tmp_path: Path) -> AuditorPrivateKey:
    key = AuditorPrivateKey.create()
    save_auditor_key(tmp_path / "auditor.key", key)
    return key


def test_it_is_kept_and_goes_on_after_a_crash(
    processes: Processes, parley: Parley, tmp_path: Path, auditor: AuditorPrivateKey
) -> None:
    journal = tmp_path / "journal"
    save_identity(tmp_path / "identity", Identity.create())
    options = ["--journal", str(journal), "--identity", str(tmp_path / "identity")]
    options += ["--auditor", auditor.public.text, "--journal-fsync", "always"]
    running, (address,) = processes.serve(*options)
    assert parley("call", address, "parley.echo", "hello").code == 0
    running.stop(SIGKILL)
    (left,) = journal.glob("*.pjl.open")
    with left.open("ab") as file:
        file.write(b"torn")
    running = processes.start("serve", "--json", *options)
    recovered, kept = running.event("recovered"), running.event("journal")
    assert (recovered["segment"], recovered["cut"]) == (left.name.removesuffix(".open"), 4)
    assert kept["directory"] == str(journal)
    assert kept["auditors"] == [auditor.public.text]
    running.event("ready")
    assert running.stop().code == 0
    key = str(tmp_path / "auditor.key")
    done = parley("journal", "verify", str(journal), "--auditor-key", key, "--json")
    assert done.last["kinds"].get("torn") == 1
    assert done.last["kinds"].keys() <= {"torn", "no-end"}  # it did crash
    assert (done.last["sessions"], done.last["segments"]) == (1, 2)


def test_a_full_disk_ends_the_node_if_it_is_told_so(
    processes: Processes, parley: Parley, tmp_path: Path, auditor: AuditorPrivateKey
) -> None:
    journal = tmp_path / "journal"
    options = ["--auditor", auditor.public.text, "--journal-on-failure", "stop"]
    running, (address,) = processes.serve("--journal", str(journal), *options)
    assert parley("call", address, "parley.echo").code == 0
    (segment,) = journal.glob("*.pjl.open")
    full = segment.stat().st_size + 1_000  # a file can't grow beyond this
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (full, full))
    parley("call", address, "parley.echo", "--timeout", "5")
    done = running.finish()
    assert (done.code, done.last["event"]) == (6, "error")
    assert "journal" in done.last["text"]


@pytest.mark.parametrize("stops", [False, True])
async def test_a_failure_is_said_or_ends_the_node(
    capsys: pytest.CaptureFixture[str], anyio_backend: object, stops: bool
) -> None:
    class Failed:
        stops_node = stops

        async def failure(self) -> JournalFailedError:
            return JournalFailedError("no room")

    journal: Any = Failed()
    if stops:
        with pytest.raises(JournalFailedError):
            await watch_journal(Output(as_json=True), journal)
    else:
        await watch_journal(Output(as_json=True), journal)
        assert '"event": "journal-failed", "text": "no room"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--journal", "there"], "it has no auditor"),
        (
            ["--auditor", AuditorPrivateKey.create().public.text],
            "set journal.directory or give --journal",
        ),
        (
            ["--journal", "there", "--auditor", "me"],
            "cannot read the auditor's key 'me': expected parley-auditor-",
        ),
        (
            ["--journal-fsync", "often"],
            "expected always or interval or never; correct --journal-fsync",
        ),
        (
            ["--journal-on-failure", "cry"],
            "to 'cry': expected alarm or stop",
        ),
    ],
)
def test_usage(
    parley: Parley,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = parley("serve", *options)
    assert (done.code, sentence in done.err) == (2, True)
    assert not (tmp_path / "there").exists()
