"""Every command that meets other nodes, on trio as well: real processes on both sides.

The other tests of the commands run them on asyncio, which is their default.
"""

from pathlib import Path
from signal import SIGINT, SIGTERM

import pytest

from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes

TRIO = ("--loop", "trio")


def test_serve_and_what_asks_it(processes: Processes) -> None:
    running, (address,) = processes.serve(*TRIO)
    called = processes.run("call", address, "parley.echo", "text", *TRIO)
    assert (called.code, called.out, called.err) == (0, "text\n", "")
    pinged = processes.run("ping", address, "--count", "2", "--interval", "0", "--json", *TRIO)
    assert (pinged.code, pinged.last["count"]) == (0, 2)
    ticks = processes.run("sub", address, "parley.clock", "--count", "1", "--json", *TRIO)
    assert (ticks.code, ticks.last["notes"]) == (0, 1)
    looked = processes.run("doctor", address, "--json", *TRIO)
    assert (looked.code, looked.last["event"]) == (0, "done")
    assert running.stop(SIGTERM).code == 0


def test_pub_and_sub(processes: Processes) -> None:
    publisher = processes.start("pub", "t", "--wait", "1", "--json", *TRIO, data=b"a\nb\n")
    address = publisher.event("ready")["addresses"][0]
    assert processes.run("sub", address, "t", *TRIO).out == "a\nb\n"
    assert publisher.finish().code == 0


def test_chat(processes: Processes) -> None:
    host = processes.start(
        "chat", "--listen", "tcp://127.0.0.1:0", "--name", "ann", "--json", *TRIO, typing=True
    )
    address = host.event("ready")["addresses"][0]
    guest = processes.start("chat", address, "--name", "bob", "--json", *TRIO, typing=True)
    assert host.event("join")["name"] == "bob"
    guest.type("good morning\n")
    assert host.event("message")["text"] == "good morning"
    guest.end_input()
    assert guest.finish().code == 0
    assert host.stop(SIGINT).code == 130


def test_send_and_receive(processes: Processes, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4_000
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "there").mkdir()
    receiver = processes.start("receive", "there", "--once", "--yes", "--json", *TRIO)
    address = receiver.event("ready")["addresses"][0]
    sent = processes.run("send", "file", address, "--json", *TRIO)
    assert (sent.code, receiver.finish().code) == (0, 0)
    assert (tmp_path / "there" / "file").read_bytes() == content


def test_the_demo(processes: Processes) -> None:
    done = processes.run("demo", "--json", *TRIO)
    assert (done.code, done.err, done.last["event"]) == (0, "", "done")


@pytest.mark.parametrize("command", [("ping", "tcp://127.0.0.1:1"), ("demo",)])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--loop", "twisted"), "invalid --loop 'twisted': expected asyncio or trio"),
        (("--loop", "trio", "--uvloop"), "cannot use --uvloop with --loop trio"),
    ],
)
def test_loops_that_are_not_there(
    parley: Parley, command: tuple[str, ...], options: tuple[str, ...], sentence: str
) -> None:
    if command == ("demo",) and "--uvloop" in options:
        sentence = "No such option '--uvloop'"
    done = parley(*command, *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"parley: {sentence}")
