"""`parley demo` with real processes: its output and its failures."""

import hashlib
import os
import re
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes, Running


def _other_process(running: Running) -> int:
    """The demo's child."""
    path = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    (child,) = path.read_text().split()
    return int(child)


def _await_end(process: int) -> None:
    """Wait until a process that is not a child of this one has ended."""
    for _ in range(200):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.05)
    raise AssertionError("the demo's other process is still there")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that takes its time."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**28)  # sparse, so that it uses no disk space
    return path


def test_json_of_the_demo(processes: Processes) -> None:
    done = processes.run("demo", "--json")
    assert (done.code, done.err) == (0, "")
    kinds = [line["event"] for line in done.lines]
    told = ["connected", "call", "streamed-answer", "topic", "chat", "wrong-id", "flipped-bit"]
    assert kinds == [*told, "key-update", "rekey", "file", "done"]
    connected, call, streamed, topic, chat, wrong, flipped, update, rekey, file, last = done.lines
    assert len({connected["node_id"], connected["local_node_id"]}) == 2
    assert sorted(connected["suite"]) == ["cipher", "hash", "kex", "sealing", "signing"]
    assert connected["encrypted"] is True
    assert call["answer"].startswith("hello alice, I am ")
    assert call["answer"].endswith(connected["node_id"][:8])
    assert streamed["items"][:3] == ["Two", "nodes", "met;"]
    assert (topic["notes"], topic["subscribers"]) == (1_000, 3)
    assert chat["text"] == "good morning, everybody"
    assert chat["author"] not in (connected["node_id"][:8], connected["local_node_id"][:8])
    assert wrong == {
        "event": "wrong-id",
        "refused": True,
        "code": "peer-not-trusted",
        "kind": "close",
        "expected": connected["node_id"],
    }
    assert flipped["detected"] is True
    assert flipped["name"] in ("bad-record", "seal-violation")
    readme = (Path(__file__).parents[3] / "README.md").read_bytes()
    assert file["name"] == "README.md"
    assert file["size"] == len(readme)
    assert file["sha256"] == hashlib.sha256(readme).hexdigest()
    assert file["match"] is True
    assert 0 < update["at"] < rekey["at"] < file["size"]  # during the transfer
    assert rekey["number"] == 1
    for name in ("handshake", "call", "topic", "round_trip"):
        assert 0 < last[f"{name}_seconds"] <= last["seconds"]


def test_json_of_the_keys(processes: Processes) -> None:
    done = processes.run("demo", "keys", "--json")
    assert (done.code, done.err) == (0, "")
    kinds = [line["event"] for line in done.lines]
    stolen = ["bob", "link", "member", "theft", "succession", "followed", "federation", "thief"]
    assert kinds == [*stolen, "right", "revocation", "conflict", "done"]
    bob, link, member, theft, succession, followed, federation, thief, *rest = done.lines
    right, revocation, conflict, last = rest
    old, new = succession["origin"], succession["successor"]
    assert {bob["node_id"], member["node_id"], federation["origin"]} == {old}
    assert link["answer"] == "hello, I am bob"
    # The thief answers in bob's name, and has bob's rights.
    assert theft["node_id"] == old
    assert theft["answer"] == "hello, I am bob; what is the password?"
    assert theft["opened"] == "opened"
    assert (followed["node_id"], followed["answer"]) == (new, "hello, I am bob, with a new key")
    # Then all nodes refuse the thief.
    assert thief["ended"].keys() == {"alice", "ada", "ben", "link"}
    assert thief["refused"].keys() == {"alice", "ada", "ben", "bob"}
    assert set(thief["refused"].values()) == {"authentication-failed"}
    assert f"its successor is {new}" in thief["dialled"]
    # The successor has the rights only after a person has accepted it.
    assert right["refused"] == "not-authorised"
    question = right["question"]
    assert question["place"] == "federation.members"
    assert question["text"] == f"its successor {new} does not take its place until you accept it"
    assert question["mend"] == f"to grant it the same, run: parley peers accept {old}"
    assert (right["opened"], right["accepted"]) == ("opened", new)
    assert revocation["ended"] == "authentication-failed"
    assert conflict["accepted"] in conflict["successors"]
    assert len(set(conflict["successors"])) == 2
    assert "two successors claim to be" in conflict["text"]
    assert 0 < followed["seconds"] < last["seconds"]
    assert [path.name for path in processes.directory.iterdir()] == ["stderr-0"]


def test_what_people_see(processes: Processes, tmp_path: Path) -> None:
    path = tmp_path / "some file.bin"
    content = bytes(range(256)) * 12_000
    path.write_bytes(content)
    done = processes.run("demo", str(path))
    assert (done.code, done.err) == (0, "")
    for word in (
        "(this process)",
        "(another process)",
        "kex x25519-mlkem768",
        "call     greet('alice')",
        "a response in 8 items",
        "1,000 notes to 3 subscribers, all in order",
        "(carol): good morning, everybody",
        "rejected, peer-not-trusted",
        "detected and closed",
        f"sha256   {hashlib.sha256(content).hexdigest()} on both sides",
        "3,072,000 bytes",
        "MB/s",
        "handshake",
        "round trip",
        "The file arrived unchanged; the keys were updated during the transfer.",
    ):
        assert word in done.out, word
    assert "\x1b" not in done.out  # it is no terminal


@pytest.mark.parametrize("size", [1, 65_537])
@pytest.mark.slow
def test_small_files_change_keys_too(parley: Parley, tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    done = parley("demo", str(path), "--json")
    assert done.code == 0
    assert {"key-update", "rekey"} < {line["event"] for line in done.lines}
    assert done.last["file"]["size"] == size


def test_an_empty_file_is_no_boast(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    done = parley("demo", str(path))
    assert done.code == 0
    assert "The file arrived unchanged (it is empty)." in done.out


def test_an_odd_name_is_shown_and_steers_nothing(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "[red] new\nline \x1b[2J \udcff 日本"
    path.write_bytes(b"content")
    done = parley("demo", str(path))
    assert (done.code, done.err) == (0, "")
    assert done.out.count("[red] new\\nline \\x1b[2J \\udcff 日本") == 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing", "cannot read '{}': No such file or directory"),
        (".", "cannot send '{}': it is not a regular file"),
        ("pipe", "cannot send '{}': it is not a regular file"),
    ],
)
def test_what_cannot_be_sent(parley: Parley, tmp_path: Path, name: str, sentence: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / name
    done = parley("demo", str(path))
    assert done == (6, "", f"parley: {sentence.format(path)}\n")
    last = parley("demo", str(path), "--json").last
    assert (last["event"], last["code"]) == ("error", 6)


def test_the_other_process_is_killed(processes: Processes, large: Path) -> None:
    running = processes.start("demo", str(large), "--json")
    running.event("key-update")  # earlier it might be dialled again
    os.kill(_other_process(running), SIGKILL)
    done = running.finish()
    assert (done.code, done.err) == (1, "")
    assert (done.last["event"], done.last["name"]) == ("error", "connection-lost")


def test_the_demo_is_killed(processes: Processes, large: Path) -> None:
    running = processes.start("demo", str(large), "--json")
    running.event("call")
    other = _other_process(running)
    running.stop(SIGKILL)
    _await_end(other)


def test_the_demo_is_interrupted(processes: Processes, large: Path) -> None:
    running = processes.start("demo", str(large), "--json")
    running.event("call")
    other = _other_process(running)
    done = running.stop(SIGTERM)
    assert (done.code, done.err) == (143, "")
    assert (done.last["event"], done.last["name"]) == ("error", "interrupted")
    _await_end(other)


def test_a_file_that_shrinks_is_told(processes: Processes, large: Path) -> None:
    running = processes.start("demo", str(large), "--json")
    running.event("key-update")
    os.truncate(large, 4096)
    done = running.finish()
    assert done.code == 6
    assert done.last["text"] == "cannot send large: its size changed during the transfer"


@pytest.mark.parametrize(("place", "what"), [(1, []), (2, ["federation"]), (3, ["keys"])])
def test_the_documents_have_what_it_shows(parley: Parley, place: int, what: list[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    recorded = page.split("```text\n")[place].split("```", 1)[0]
    shown = parley("demo", *what).out
    # The timings are a table, with lines at a terminal only.
    recorded, shown = (
        re.sub(r"^[┏┃┡│└].*\n|^.*\t.*\n", "", text, flags=re.M) for text in (recorded, shown)
    )
    assert [labels(line) for line in recorded.splitlines()] == [
        labels(line) for line in shown.splitlines()
    ]


def labels(line: str) -> list[str]:
    """Return the label at the start of a line, if it has one."""
    return [word for word in line.split()[:1] if word.isalpha()]
