"""`parley chat` in real processes, over pipes and in a terminal."""

import os
import pty
import termios
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals
from subprocess import Popen
from typing import Any

import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import save_identity
from parley._node.apps.chat.messages import TEXT_LENGTH
from parley._node.cli.chat import AWAY
from parley._node.trust.known_peers import KnownPeers
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import PARLEY, TIMEOUT, Processes, Running
from tests.node.cli.serve_topics import HOSTILE
from tests.node.cli.vt100 import Display

HELP_LINES = [
    "you are ann; /who lists the people here, /quit leaves, /help",
    " shows this; // sends a leading /",
]
ANYWHERE = ("--listen", "tcp://127.0.0.1:0")


def host(
    processes: Processes, *args: str, listen: str = "tcp://127.0.0.1:0"
) -> tuple[Running, str]:
    """Start a host called Host with `--json`; returns it and its address."""
    arguments = ("chat", "--listen", listen, "--name", "Host", "--json", *args)
    running = processes.start(*arguments, typing=True)
    address: str = running.event("ready")["addresses"][0]
    return running, address


def guest(processes: Processes, address: str, name: str, *args: str) -> Running:
    """Start a guest with `--json` and wait until it has joined."""
    running = processes.start("chat", address, "--name", name, "--json", *args, typing=True)
    running.event("joined")
    return running


def roster(running: Running) -> list[tuple[str, str, bool]]:
    """Return the output of /who."""
    running.type("/who\n")
    people: list[dict[str, Any]] = running.event("roster")["people"]
    return [(person["name"], person["standing"], person["host"]) for person in people]


def test_a_conversation(processes: Processes) -> None:
    hosting, address = host(processes)
    ann = guest(processes, address, "ann")
    assert hosting.event("join")["name"] == "ann"
    bob = guest(processes, address, "bob")
    assert hosting.event("join")["name"] == "bob"
    ann.type("héllo ✓\n//slash\n\n   \n")
    hosting.type("welcome\n")
    for running in (hosting, bob, ann):
        said = [running.event("message") for _ in range(3)]
        texts = {(message["name"], message["text"]) for message in said}
        assert texts == {("ann", "héllo ✓"), ("ann", "/slash"), ("Host", "welcome")}
    bob.type("/quit\n")
    assert bob.finish().last == {"event": "done", "reason": "left"}
    assert hosting.event("leave")["name"] == "bob"
    ann.end_input()
    assert ann.finish().last == {"event": "done", "reason": "left"}
    assert hosting.event("leave")["name"] == "ann"
    hosting.end_input()
    done = hosting.finish()
    assert (done.code, done.err, done.last) == (0, "", {"event": "done", "reason": "left"})


def test_the_host_closes_the_room(processes: Processes) -> None:
    hosting, address = host(processes)
    ann = guest(processes, address, "ann")
    hosting.type("bye\n/quit\n")
    assert hosting.finish().code == 0
    done = ann.finish()
    assert (done.code, done.last) == (0, {"event": "done", "reason": "closed"})
    assert [line["text"] for line in done.lines if line["event"] == "message"] == ["bye"]


def test_the_same_name_twice(processes: Processes) -> None:
    hosting, address = host(processes)
    running = processes.start("chat", address, "--name", "HOST", "--json", typing=True)
    assert running.event("joined")["name"] == "HOST-2"
    assert [(name, host) for name, _, host in roster(running)] == [("Host", True)]
    running.event("join")
    assert roster(running) == [("Host", "verified", True), ("HOST-2", "you", False)]
    assert hosting.event("join")["name"] == "HOST-2"


def test_what_was_typed_wrong(processes: Processes) -> None:
    hosting, address = host(processes)
    ann = guest(processes, address, "ann")
    for typed, code in (("/nope x", 2), ("x" * 4_097, 2)):
        ann.type(f"{typed}\n")
        assert ann.event("refused")["code"] == code
    ann.type("0\n")
    assert hosting.event("message")["text"] == "0"
    ann.end_input()
    assert ann.finish().code == 1  # a line was not said


def test_text_for_people_is_one_harmless_line_each(processes: Processes) -> None:
    hosting, address = host(processes)
    eyes = processes.start("chat", address, "--name", "eyes", typing=True)
    hosting.event("join")
    ann = guest(processes, address, "ann")
    ann.type(HOSTILE.replace("\n", "\u2028") + "\n")
    ann.event("message")
    lines = [eyes.line()]
    while not lines[-1].startswith("ann: "):
        lines.append(eyes.line())
    assert lines[0].startswith("you are eyes; /who lists")
    assert lines[1].startswith("  Host ")
    assert lines[-1].isprintable()
    assert "\\x1b]0;owned\\x07\\u2028parley: all is well\\r\\x1b[2J" in lines[-1]
    eyes.type("/help\n")
    assert eyes.line().startswith("/who lists")


def test_who_is_verified(processes: Processes, tmp_path: Path) -> None:
    keys = {}
    for name in ("host", "ann", "bob"):
        identity = Identity.create()
        save_identity(tmp_path / name, identity)
        keys[name] = identity.node_id
    known = KnownPeers(tmp_path / "known.txt")
    for name in ("ann", "host"):
        known.add(keys[name], None, datetime.now(UTC))
    trust = ("--trust", str(known.path))
    # With `known` only who is on record gets in: use the usual file for the host.
    usual = KnownPeers(processes.home / "known_peers")
    usual.add(keys["ann"], None, datetime.now(UTC))
    hosting, address = host(processes, "--identity", str(tmp_path / "host"))
    ann = guest(processes, address, "ann", "--identity", str(tmp_path / "ann"))
    hosting.event("join")
    bob = guest(processes, address, "bob", "--identity", str(tmp_path / "bob"))
    hosting.event("join")
    assert roster(hosting) == [
        *(("Host", "you", True), ("ann", "verified", False), ("bob", "new", False)),
    ]
    # A guest has only the host's word on the others' names.
    bob.event("join")
    assert roster(bob) == [
        *(("Host", "verified", True), ("ann", "told", False), ("bob", "you", False)),
    ]
    ann.end_input()
    # Without an id in the address the record counts, as it was before the first meeting.
    place = address.partition("#")[0]
    for options, standing in (
        (trust, "verified"),
        (("--trust", "first-use"), "new"),
        ((), "verified"),
    ):
        carl = guest(processes, place, "carl", *options)
        assert roster(carl)[0] == ("Host", standing, True)
        carl.end_input()
        assert carl.finish().code == 0


@pytest.mark.parametrize(("number", "code"), [(SIGINT, 130), (SIGTERM, 143)])
def test_interrupted(processes: Processes, number: Signals, code: int) -> None:
    hosting, address = host(processes)
    ann, bob = (guest(processes, address, name) for name in ("ann", "bob"))
    assert ann.stop(number).code == code
    leave = hosting.event("leave")
    assert leave["name"] == "ann"
    done = hosting.stop(number)
    assert (done.code, done.last["name"]) == (code, "interrupted")
    # It may come back: they wait for that.
    assert "going-away" in bob.event("disconnected")["text"]
    assert bob.stop(number).code == code


def test_a_host_that_is_killed_and_comes_back(processes: Processes, tmp_path: Path) -> None:
    """Only a real process can show the effects of SIGKILL."""
    save_identity(tmp_path / "key", Identity.create())
    args = ("--identity", str(tmp_path / "key"))
    hosting, address = host(processes, *args)
    ann, other = (guest(processes, address, name, "--fresh") for name in ("ann", "ANN"))
    hosting.stop(SIGKILL)
    for running in (ann, other):
        running.event("suspended")
    ann.type("is anybody there?\n")

    hosting, _ = host(processes, *args, listen=address.partition("#")[0])
    for running, name in ((ann, "ann"), (other, "ANN-2")):
        # All keep their names, in whatever order they return.
        assert running.event("joined")["name"] == name
    # A line that was typed during the outage is sent now.
    assert hosting.event("message")["text"] == "is anybody there?"
    for running in (ann, other):
        while {name for name, _, _ in roster(running)} != {"Host", "ann", "ANN-2"}:
            running.event("join")
    hosting.stop(SIGTERM)
    other.event("disconnected")
    other.type("I am\n")
    hosting, _ = host(processes, *args, listen=address.partition("#")[0])
    assert hosting.event("message")["text"] == "I am"
    for running in (ann, other):
        running.event("joined")
    hosting.type("/quit\n")
    for running in (ann, other):
        done = running.finish()
        assert (done.code, done.last) == (0, {"event": "done", "reason": "closed"})


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["tcp://127.0.0.1:1", *ANYWHERE], 2),
        ([*ANYWHERE, "--plaintext"], 2),
        ([*ANYWHERE, "--name", "\x1b[2J"], 2),
        ([*ANYWHERE, "--name", "x" * 33], 2),
        (["--listen", "nowhere"], 2),
        (["tcp://127.0.0.1:1"], 3),
        (["--listen", "tcp://192.0.2.1:4000"], 3),
    ],
)
def test_what_cannot_be(processes: Processes, arguments: list[str], code: int) -> None:
    done = processes.run("chat", *arguments, data=b"")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("parley: ")
    assert done.err.count("\n") == 1


def test_answers_that_are_no_room(processes: Processes, parley: Parley, server: str) -> None:
    place = server.partition("#")[0]
    assert processes.run("chat", server, data=b"").code == 5
    assert processes.run("chat", f"{place}#{'a' * 52}", data=b"").code == 4
    # A chat needs standard input.
    done = parley("chat", server)
    assert (done.code, done.err) == (
        6,
        "parley: cannot read standard input: it is closed; redirect a file or a pipe to it\n",
    )


class Terminal:
    """A `parley` process whose standard files are a pseudo-terminal."""

    def __init__(self, processes: Processes, *args: str, encoding: str = "utf-8") -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 60))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = Popen(
            [*PARLEY, *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={
                **os.environ,
                "PARLEY_HOME": str(processes.home),
                "PYTHONIOENCODING": encoding,
                "TERM": "xterm",
            },
            cwd=Path(__file__).parents[4],
            start_new_session=True,
        )
        os.set_blocking(self._master, False)
        self._display = Display(60)

    def until(self, *lines: str) -> None:
        """Wait until the last lines on the screen are these, without blanks at their ends."""
        deadline = time.monotonic() + TIMEOUT  # noqa: TID251  # a test's own clock
        while [line.rstrip() for line in self._display.lines[-len(lines) :]] != list(lines):
            assert time.monotonic() < deadline, self._display.lines  # noqa: TID251  # as above
            try:
                text = os.read(self._master, 65_536).decode()
            except BlockingIOError:
                time.sleep(0.01)
            else:
                self._display.feed(text)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    @property
    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def terminals(processes: Processes) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.end()


def test_a_terminal(processes: Processes, terminals: list[Terminal]) -> None:
    hosting, address = host(processes)
    terminal = Terminal(processes, "chat", address, "--name", "ann")
    terminals.append(terminal)
    joined = f"* ann has joined ({hosting.event('join')['node_id'][:8]}, you)"
    terminal.until(joined, "ann>")
    terminal.type("hal")
    terminal.until(joined, "ann> hal")
    hosting.type("\x1b[2Jin between\n")
    hosting.event("message")
    # The line that is begun goes, the message comes, and the line is there again.
    terminal.until(joined, "Host: \\x1b[2Jin between", "ann> hal")
    terminal.type("l!\x7fx\x1b[D\x7fo\x1b[C\x7fl\x01\x1b[3~h\r")  # cursor keys, and Ctrl-A
    assert hosting.event("message")["text"] == "halol"
    terminal.until("ann: halol", "ann>")
    # A paste waits for Enter, and brings no keys but letters.
    terminal.type("\x1b[200~one\n/quit\n\x1b[201~")
    terminal.until("ann: halol", "ann> one /quit")
    terminal.type("\x15\x1b[A")  # away with it, and back to the last line
    terminal.until("ann: halol", "ann> halol")
    terminal.type("\x15\x1b[200~two\nthree\x07\x1b[201~\r")
    assert hosting.event("message")["text"] == "two three"
    terminal.until("ann: two three", "ann>")
    terminal.type("/quit\r")
    assert terminal.process.wait(TIMEOUT) == 0
    assert terminal.modes == terminal.before


def test_what_is_typed_is_utf_8_in_every_locale(
    processes: Processes, terminals: list[Terminal]
) -> None:
    hosting, address = host(processes)
    terminal = Terminal(processes, "chat", address, "--name", "ann", encoding="latin-1")
    terminals.append(terminal)
    terminal.until(f"* ann has joined ({hosting.event('join')['node_id'][:8]}, you)", "ann>")
    terminal.type("h\u00e9llo \u2713\r")
    assert hosting.event("message")["text"] == "h\u00e9llo \u2713"


def test_a_terminal_when_the_host_leaves(processes: Processes, terminals: list[Terminal]) -> None:
    hosting, address = host(processes)
    terminal = Terminal(processes, "chat", address, "--name", "ann")
    terminals.append(terminal)
    joined = f"* ann has joined ({hosting.event('join')['node_id'][:8]}, you)"
    terminal.until(joined, "ann>")
    terminal.type("half a line")
    terminal.until(joined, "ann> half a line")
    hosting.type("/quit\n")
    assert terminal.process.wait(TIMEOUT) == 0
    terminal.until(joined, "the host has closed the room", "")
    assert terminal.modes == terminal.before


def test_a_terminal_needs_asyncio(processes: Processes, terminals: list[Terminal]) -> None:
    terminal = Terminal(processes, "chat", *ANYWHERE, "--loop", "trio")
    terminals.append(terminal)
    assert terminal.process.wait(TIMEOUT) == 2
    terminal.until(
        "parley: cannot use --loop trio at a terminal: chat requires",
        "asyncio there; leave --loop out",
        "",
    )


@pytest.mark.parametrize(("keys", "code"), [("\x03", 130), ("\x04", 0)])
def test_a_terminal_is_left_as_it_was(
    processes: Processes, terminals: list[Terminal], keys: str, code: int
) -> None:
    terminal = Terminal(processes, "chat", *ANYWHERE, "--name", "ann")
    terminals.append(terminal)
    terminal.until(HELP_LINES[0], HELP_LINES[1], "ann>")
    assert terminal.modes != terminal.before
    terminal.type(keys)
    assert terminal.process.wait(TIMEOUT) == code
    assert terminal.modes == terminal.before


def test_the_usual_name_is_ones_login(processes: Processes) -> None:
    for login, name in (("zoe", "zoe"), ("\x1b[2J", None)):
        running = processes.start(
            "chat", *ANYWHERE, "--json", typing=True, environment={"LOGNAME": login}
        )
        ready = running.event("ready")
        assert ready["name"] == (name or ready["node_id"][: len(ready["name"])])
        running.end_input()
        assert running.finish().code == 0


def test_a_host_that_quits_by_a_signal_leaves_a_hint(processes: Processes) -> None:
    hosting, address = host(processes)
    ann = processes.start("chat", address, "--name", "ann", typing=True)
    hosting.event("join")
    hosting.stop(SIGTERM)
    while ann.line() != AWAY:
        pass
    ann.type("/quit\n")
    assert ann.finish().code == 0


def test_a_line_of_a_pipe_that_is_not_said_fails_the_command(processes: Processes) -> None:
    hosting, address = host(processes)
    data = ("x" * (TEXT_LENGTH + 1) + "\nhello\n").encode()
    ann = processes.run("chat", address, "--name", "ann", data=data)
    assert ann.code == 1
    assert ann.err == (
        "parley: cannot send 1 line of the input: the room refused them or the connection "
        "was lost; the reasons are above\n"
    )
    assert hosting.event("message")["text"] == "hello"
    hosting.stop(SIGTERM)
