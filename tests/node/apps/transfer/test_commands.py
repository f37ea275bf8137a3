"""`parley send` and `parley receive` as real processes."""

import hashlib
import os
import socket
import time
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import pytest

from parley._node.apps.transfer.names import PARTIAL_ENDING
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes, Running

CONTENT = bytes(range(251)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a file.bin"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file whose transfer takes some time."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**27)  # sparse: it uses no disk space here
        file.write(b"begin")
    return path


def receive(
    processes: Processes, directory: Path, *args: str, listen: str = "tcp://127.0.0.1:0"
) -> tuple[Running, str]:
    """Run a receiver and return its address."""
    running = processes.start(
        "receive", str(directory), "--listen", listen, "--json", "--yes", *args
    )
    return running, running.event("ready")["addresses"][0]


def wait_for_bytes(directory: Path, least: int) -> None:
    """Wait until a transfer is in progress."""
    for _ in range(2_000):
        if any(entry.stat().st_size >= least for entry in directory.glob(".*")):
            return
        time.sleep(0.01)
    raise AssertionError("nothing came")


def test_files_arrive_and_both_say_their_hash(
    processes: Processes, parley: Parley, directory: Path, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_bytes(b"")
    running, address = receive(processes, directory, "--count", "2")
    done = parley("send", str(file), str(tmp_path / "empty"), address, "--json")
    assert (done.code, done.err) == (0, "")
    kinds = ["connected", "begin", "file", "begin", "file", "done"]
    assert [line["event"] for line in done.lines] == kinds
    sent = done.lines[2]
    assert (sent["name"], sent["size"], sent["sha256"]) == ("a file.bin", len(CONTENT), SHA256)
    assert (sent["match"], sent["new"], sent["offset"]) == (True, True, 0)
    assert (done.last["files"], done.last["size"]) == (2, len(CONTENT))
    received = running.finish()
    assert (received.code, received.err) == (0, "")
    files = [line for line in received.lines if line["event"] == "file"]
    assert (files[0]["name"], files[0]["sha256"]) == ("a file.bin", SHA256)
    assert received.last == {"event": "done", "files": 2}
    assert sorted(os.listdir(directory)) == ["a file.bin", "empty"]
    assert (directory / "a file.bin").read_bytes() == CONTENT


def test_repr(processes: Processes, parley: Parley, directory: Path, file: Path) -> None:
    running = processes.start("receive", str(directory), "--once", "--yes")
    line = running.line()
    assert line.startswith("listening on tcp://127.0.0.1:")
    done = parley("send", str(file), line.removeprefix("listening on "))
    assert done.code == 0
    assert done.out.startswith("a file.bin -> ")
    assert f"sha256 {SHA256} on both sides" in done.out
    again, address = receive(processes, directory, "--once")
    lines = parley("send", str(file), address).out.splitlines()
    assert lines[0].startswith("a file.bin -> ")
    assert lines[0].endswith(", already complete")
    assert again.finish().code == 0
    received = running.finish()
    assert received.code == 0
    assert f"{len(CONTENT):,} bytes" in received.out
    assert f"sha256 {SHA256} on both sides" in received.out


def test_another_file_stays_and_the_rest_is_sent(
    processes: Processes, parley: Parley, directory: Path, file: Path, tmp_path: Path
) -> None:
    (directory / file.name).write_bytes(b"mine")
    (tmp_path / "b").write_bytes(b"b")
    running, address = receive(processes, directory)
    done = parley("send", str(file), str(tmp_path / "b"), address)
    assert done.code == 5
    assert done.err == "parley: refused (code 66): another file has that name\n"
    done = parley("send", str(file), address, "--json")
    assert (done.code, done.last["code"], done.last["exit"]) == (5, 66, 5)
    assert (directory / file.name).read_bytes() == b"mine"
    assert (directory / "b").read_bytes() == b"b"
    refused = [line for line in running.stop(SIGINT).lines if line["event"] == "refused"]
    assert [line["name"] for line in refused] == [file.name] * 2
    forced, address = receive(processes, directory, "--force", "--once")
    assert parley("send", str(file), address).code == 0
    assert forced.finish().code == 0
    assert (directory / file.name).read_bytes() == CONTENT


def test_largest_size(processes: Processes, parley: Parley, directory: Path, file: Path) -> None:
    _, address = receive(processes, directory, "--max-size", "1000")
    done = parley("send", str(file), address)
    assert done.err == "parley: refused (code 67): at most 1000 bytes are taken\n"
    assert os.listdir(directory) == []


def test_side_by_side(
    processes: Processes, parley: Parley, directory: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / str(number) for number in range(6)]
    for path in paths:
        path.write_bytes(CONTENT + path.name.encode())
    _, address = receive(processes, directory)
    assert parley("send", *map(str, paths), address, "--parallel", "3").code == 0
    for path in paths:
        assert (directory / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_a_receiver_that_is_killed_and_comes_back(
    processes: Processes, directory: Path, large: Path, tmp_path: Path
) -> None:
    key = str(tmp_path / "key")
    assert processes.run("id", "new", key).code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    running, address = receive(processes, directory, "--identity", key, listen=place)
    sender = processes.start("send", str(large), address, "--json")
    wait_for_bytes(directory, 10_000_000)
    running.stop(SIGKILL)
    assert "transport" in sender.event("suspended")["text"]
    again, _ = receive(processes, directory, "--identity", key, "--once", listen=place)
    done = sender.finish()
    assert (done.code, done.last["event"]) == (0, "done")
    (sent,) = [line for line in done.lines if line["event"] == "file"]
    assert 10_000_000 <= sent["offset"] < 2**27
    assert again.finish().code == 0
    assert os.listdir(directory) == ["large"]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_interrupted_and_run_again(
    processes: Processes, directory: Path, large: Path, who: str
) -> None:
    running, address = receive(processes, directory)
    sender = processes.start("send", str(large), address, "--json", "--retries", "0")
    wait_for_bytes(directory, 10_000_000)
    ended = (sender if who == "sender" else running).stop(SIGINT)
    assert (ended.code, ended.last["name"]) == (130, "interrupted")
    other = sender.finish() if who == "receiver" else running.stop(SIGTERM)
    assert other.code == (1 if who == "receiver" else 143)
    (left,) = os.listdir(directory)
    assert left.endswith(PARTIAL_ENDING)
    again, address = receive(processes, directory, "--once")
    done = processes.run("send", str(large), address, "--json")
    assert done.code == 0
    (begin,) = [line for line in done.lines if line["event"] == "begin"]
    assert 10_000_000 <= begin["offset"] < 2**27
    assert again.finish().code == 0
    assert os.listdir(directory) == ["large"]


def test_what_cannot_be_sent(parley: Parley, tmp_path: Path, file: Path) -> None:
    nowhere = "tcp://127.0.0.1:1"
    other = tmp_path / "elsewhere" / "A FILE.bin"
    other.parent.mkdir()
    other.write_bytes(b"")
    (tmp_path / ".hidden").write_bytes(b"")
    for args, code, words in [
        ((str(tmp_path), nowhere), 2, "is a directory"),
        ((str(tmp_path / "none"), nowhere), 6, "No such file"),
        ((str(tmp_path / ".hidden"), nowhere), 2, "begins with a dot"),
        ((str(file), str(other), nowhere), 2, "would have the same name"),
        ((nowhere,), 2, "FILE... [ADDR]"),
        ((str(file), str(file)), 2, "would have the same name"),
        ((str(file), nowhere), 3, "cannot reach"),
    ]:
        done = parley("send", *args)
        assert (done.code, words in done.err) == (code, True), done


def test_node_that_does_not_receive_files(parley: Parley, server: str, file: Path) -> None:
    done = parley("send", str(file), server)
    assert done.code == 1
    assert "doesn't receive files" in done.err


def test_unwritable_directory(parley: Parley, file: Path, tmp_path: Path) -> None:
    done = parley("receive", str(tmp_path / "none"))
    assert (done.code, "No such file" in done.err) == (6, True)
    assert parley("receive", str(file)).code == 6
    assert parley("receive", str(tmp_path), "--once", "--count", "2").code == 2
