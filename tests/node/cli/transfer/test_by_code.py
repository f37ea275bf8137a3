"""`parley send` and `parley receive` with a short code, as real processes."""

import os
from pathlib import Path
from signal import SIGINT, SIGKILL
from typing import Any

import pytest

from parley._crypto.identity import NodeId
from parley._node.apps.pairing.code import Code, WrongCodeError
from parley._node.cli.output import Output
from parley._node.cli.transfer import by_code as giving
from parley._node.cli.transfer import by_code as taking
from parley._node.cli.transfer.by_code import Rendezvous
from parley._node.discovery.announcement import FoundNode
from parley._node.errors import HandshakeError, UnreachableError
from parley._node.node import Node
from parley._node.protocol.codes import CloseCode
from parley._node.trust.known_peers import KnownPeers
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes, Running

CONTENT = bytes(range(251)) * 1000
HERE = "tcp://127.0.0.1:0"


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


def give(processes: Processes, file: Path, *args: str) -> tuple[Running, dict[str, Any]]:
    """Start a sender that waits; return it and its code."""
    args = args or ("--listen", HERE, "--no-announce")
    running = processes.start("send", str(file), *args, "--json")
    return running, running.event("code")


def other(code: str) -> str:
    """A code with another second word."""
    slot, first, second = code.split("-")
    return f"{slot}-{first}-{'zulu' if second != 'zulu' else 'aardvark'}"


def test_a_file_goes_to_whoever_has_the_code(
    processes: Processes, parley: Parley, directory: Path, file: Path
) -> None:
    sender, shown = give(processes, file)
    at, code = shown["addresses"][0], shown["code"]
    wrong = parley("receive", other(code), str(directory), "--at", at, "--json")
    assert (wrong.code, wrong.last["text"]) == (
        4,
        "the other side has another code; check it, or make a new one (peer-not-trusted)",
    )
    done = parley("receive", code.replace("-", " ").upper(), str(directory), "--at", at, "--json")
    assert (done.code, done.err) == (0, "")
    assert [line["event"] for line in done.lines] == [
        "connected",
        "met",
        "begin",
        "file",
        "done",
    ]
    assert done.last == {"event": "done", "files": 1}
    sent = sender.finish()
    assert (sent.code, sent.err) == (0, "")
    kinds = [line["event"] for line in sent.lines]
    assert kinds == ["code", "wrong-code", "met", "connected", "begin", "file", "done"]
    assert (directory / file.name).read_bytes() == CONTENT
    # Each is on record: of both nodes, since these share a home.
    known = KnownPeers(processes.home / "known_peers")
    for met in (sent.lines[2], done.lines[1]):
        assert known.lookup(NodeId.parse(met["node_id"])) is not None
    again = parley("receive", code, str(directory), "--at", at)
    assert again.code == 3  # the sender has gone


def test_what_people_see(processes: Processes, parley: Parley, directory: Path, file: Path) -> None:
    sender = processes.start("send", str(file), "--listen", HERE, "--no-announce")
    code = sender.line().removeprefix("code  ")
    assert sender.line() == "      valid for one receiver, for 10 minutes"
    there = sender.line()
    assert there.startswith(f"enter parley receive {code} --at tcp://127.0.0.1:")
    *_, at = there.split()  # without its node id: the code proves who is there
    done = parley("receive", code, str(directory), "--at", at)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("met   ")
    assert sender.finish().code == 0
    assert os.listdir(directory) == [file.name]


def test_three_wrong_codes_are_too_many(
    processes: Processes, parley: Parley, directory: Path, file: Path
) -> None:
    sender, shown = give(processes, file)
    at, code = shown["addresses"][0], shown["code"]
    for _ in range(3):
        assert parley("receive", other(code), str(directory), "--at", at).code == 4
    ended = sender.finish()
    assert (ended.code, ended.last["exit"]) == (4, 4)
    assert "no longer valid after 3 tries" in ended.last["text"]
    assert os.listdir(directory) == []


def test_through_a_home(processes: Processes, parley: Parley, directory: Path, file: Path) -> None:
    _, (home, *_) = processes.serve("--accounts", "any")
    sender, shown = give(processes, file, "--home", home)
    assert (shown["addresses"], shown["home"], shown["announced"]) == ([], home, False)
    code = shown["code"]
    assert code.startswith("1-")
    nobody = parley("receive", f"2{code[1:]}", str(directory), "--home", home, "--fresh")
    assert (nobody.code, "no sender waits at slot 2" in nobody.err) == (3, True)
    done = parley("receive", code, str(directory), "--home", home, "--fresh", "--json")
    assert (done.code, done.err) == (0, "")
    assert sender.finish().code == 0
    assert (directory / file.name).read_bytes() == CONTENT
    assert parley("send", str(file), "--home", "@nobody").code == 2
    assert parley("send", str(file), "@nobody").code == 2


@pytest.mark.parametrize("number", [SIGINT, SIGKILL])
def test_a_sender_that_ends_while_it_waits(
    processes: Processes, parley: Parley, directory: Path, file: Path, number: Any
) -> None:
    sender, shown = give(processes, file)
    ended = sender.stop(number)
    assert ended.err == ""
    if number is SIGINT:
        assert (ended.code, ended.last["name"]) == (130, "interrupted")
    at = shown["addresses"][0]
    assert parley("receive", shown["code"], str(directory), "--at", at).code == 3


def test_what_does_not_go_together(parley: Parley, directory: Path, file: Path) -> None:
    there, code = "tcp://127.0.0.1:1", "7-crossover-clockwork"
    for args, words in [
        (("send", str(file), there, "--home", there), f"with the address '{there}'"),
        (("send", str(file), there, "--no-announce"), f"with the address '{there}'"),
        (("send", str(file), "--home", there, "--announce"), "give --listen too"),
        (("receive", str(directory), "--at", there), "it requires a code"),
        (
            ("receive", str(directory), str(directory)),
            "the first is not a code; give one directory",
        ),
        (("receive", code, "--listen", there), "the receiver connects to the sender"),
        (
            ("receive", code, "--at", there, "--home", there),
            f"cannot use --at {there} with --home {there}",
        ),
        (("receive", "7-crossover-clokwork"), "did you mean clockwork?"),
    ]:
        done = parley(*args)
        assert (done.code, words in done.err) == (2, True), done


def test_few_of_those_who_say_that_they_wait_are_tried(
    parley: Parley, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[str] = []

    async def find(*, slot: int) -> list[FoundNode]:
        ids = [NodeId(bytes([number]) * 32) for number in range(5)]
        return [FoundNode(one, "", (f"tcp://127.0.0.1:1#{one}",), slot=slot) for one in ids]

    async def connect(self: Node, address: str, **more: Any) -> None:
        dialled.append(address)
        raise UnreachableError("nobody")

    monkeypatch.setattr(taking, "find", find)
    monkeypatch.setattr(Node, "connect", connect)
    assert parley("receive", "7-crossover-clockwork", str(directory)).code == 3
    assert len(dialled) == len(set(dialled)) == taking.MOST_TRIED


def test_nobody_on_the_local_network(
    parley: Parley, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(*, slot: int) -> list[FoundNode]:
        return []

    monkeypatch.setattr(taking, "find", find)
    done = parley("receive", "7-crossover-clockwork", str(directory))
    assert (done.code, "no node on the local network announces it" in done.err) == (3, True)
    monkeypatch.setattr(taking, "find_spec", lambda name: None)
    done = parley("receive", "7-crossover-clockwork", str(directory))
    assert (done.code, "--at ADDR or --home ADDR" in done.err) == (2, True)


def test_nobody_answers(parley: Parley, directory: Path) -> None:
    done = parley("receive", "7-crossover-clockwork", str(directory), "--at", "tcp://127.0.0.1:1")
    assert done.code == 3


def test_a_plain_connection_is_not_used(
    processes: Processes, parley: Parley, directory: Path, file: Path
) -> None:
    for args in (
        ("send", str(file), "--plaintext", "--listen", HERE),
        ("receive", "7-crossover-clockwork", "--plaintext", "--at", HERE),
    ):
        done = parley(*args)
        assert (done.code, "cannot use a code with --plaintext" in done.err) == (2, True), done


def test_who_had_a_guess_gets_no_second_one(
    parley: Parley, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []

    async def announced(out: object, code: object) -> list[tuple[str, ...]]:
        return [(f"tcp://127.0.0.1:{port}#{NodeId(bytes(32))}",) for port in (1, 2, 3)]

    async def connect(self: Node, address: str, **_: object) -> str:
        if ":3#" in address:
            raise HandshakeError(CloseCode.AUTHENTICATION_FAILED, "not us")
        return address

    async def prove(node: Node, peer: str, *_: object) -> None:
        met.append(peer)
        raise WrongCodeError("the other side has another code")

    monkeypatch.setattr(taking, "_announced", announced)
    monkeypatch.setattr(taking, "_prove", prove)
    monkeypatch.setattr(Node, "connect", connect)
    parley("receive", "7-crossover-clockwork", str(directory))
    assert len(met) == 2


def test_a_sender_says_that_it_listens_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    code = Code.parse("7-crossover-clockwork")
    for place, lines in (
        ("tcp://0.0.0.0:41233", 1),
        ("tcp://[::]:41233", 1),
        ("tcp://127.0.0.1:41233", 0),
        ("unix:///run/socket", 0),
    ):
        giving._show(Output(False), code, [place], Rendezvous.chosen(None, [place], False))
        line = "listening on all network interfaces, port 41233; --listen ADDR restricts it\n"
        assert capsys.readouterr().out.count(line) == lines
