"""Completion in real shells: bash, zsh and fish, with names and descriptions of hostile nodes."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from parley._crypto.identity import NodeId
from parley._node.cli.context_file import Context, Contexts
from parley._node.trust.known_peers import KnownPeers
from tests.node.cli.processes import TIMEOUT, Processes

pytestmark = [pytest.mark.process, pytest.mark.shells]

ALICE = NodeId(b"\x01" * 32)
PLACE = "tcp://127.0.0.1:7000"
# What would create a file if a shell evaluated it; {} is the name of the file.
HOSTILE = (
    r"\$(touch {})",
    r"$(touch {})",
    r"\\$(touch {})",
    r"\`touch {}\`",
    r"`touch {}`",
    r'"$(touch {})"',
    r"\"; touch {}; \"",
    r"'; touch {}; '",
    r"''$(touch {})''",
    r"\'; touch {}; \'",
    r"; touch {};",
    r"& touch {} &",
    r"| touch {}",
    r")); touch {}; ((",
    r"=(touch {})",
    r"<(touch {})",
    r"${{(e):-\$(touch {})}}",
    r"(touch {})",
    r":->$(touch {})",
    r"[$(touch {})]",
    "\n touch {} \n",
    "\t$(touch {})",
)
# What would end completion with a traceback, or steer a terminal.
UGLY = ("[/x]", "[bold", "\x1b]0;owned\x07", "\\", "\\\\", '"', "'", ":", "%F{red}", "\ud800")


class Start(NamedTuple):
    """How a shell starts without files of the user, and its first command."""

    command: list[str]
    setup: str


STARTS = {
    "bash": Start(
        ["bash", "--norc", "--noprofile", "-i"],
        "bind 'set show-all-if-ambiguous on'; bind 'set page-completions off'; set +o history;"
        "bind 'set completion-query-items 1000'; source <(parley completion bash)",
    ),
    "zsh": Start(
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit; compinit -u -D; LISTMAX=1000;"
        "unsetopt list_ambiguous prompt_sp zle_bracketed_paste; source <(parley completion zsh)",
    ),
    "fish": Start(["fish", "--no-config", "-i"], "parley completion fish | source"),
}
HOSTILE_NODE = Path(__file__).with_name("hostile_node.py")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a peer on record, and `parley` as a shell finds it."""
    known = KnownPeers(tmp_path / "known_peers")
    for name in (PLACE, "tcp://127.0.0.1:7100", "alice"):
        known.add(ALICE, name, datetime(2026, 3, 4, tzinfo=UTC))
    script = tmp_path / "parley"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parley "$@"\n')
    script.chmod(0o700)
    (tmp_path / "here").mkdir()
    return tmp_path


@pytest.fixture(params=list(STARTS))
def shell(request: pytest.FixtureRequest) -> str:
    """Each shell in turn; skipped where it is not installed."""
    found = str(request.param)
    if shutil.which(found) is None:
        pytest.skip(f"{found} is not installed")
    return found


class Typing:
    """A shell with a wide terminal, its completion script loaded."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.shown = ""

    def write(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until the terminal shows this text."""
        while text not in self.shown:
            assert select.select([self._terminal], [], [], TIMEOUT)[0], self.shown
            self.shown += os.read(self._terminal, 4_096).decode(errors="replace").replace("\a", "")
        self.shown = self.shown.partition(text)[2]

    def complete(self, line: str, wanted: str) -> None:
        """Type a line and TAB, wait for a text that has to appear then, and drop the line."""
        self.write(f"{line}\t")
        self.wait_for(wanted)
        self.write("\x15")
        self.run()

    def run(self, command: str = "") -> None:
        """Run a command, and wait for its end."""
        self.write(f"{command}{';' if command else ''}echo do''ne\r")
        self.wait_for("done\r\n")


@contextmanager
def typing_at(shell: str, home: Path) -> Iterator[Typing]:
    environment = {
        "PATH": f"{home}{os.pathsep}{os.environ['PATH']}",
        "PARLEY_HOME": str(home),
        "HOME": str(home),
        "TERM": "xterm" if shell == "fish" else "dumb",
        "INPUTRC": os.devnull,
        "LC_ALL": "C.UTF-8",
    }
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 400, 0, 0))
    start = STARTS[shell]
    process = subprocess.Popen(
        start.command,
        env=environment,
        cwd=home / "here",
        pass_fds=[theirs],
        preexec_fn=partial(os.login_tty, theirs),  # fish needs a controlling terminal
    )
    os.close(theirs)
    try:
        typing = Typing(ours)
        typing.run(start.setup)
        yield typing
    finally:
        process.kill()
        process.wait(TIMEOUT)
        os.close(ours)


def test_words_are_completed(shell: str, home: Path) -> None:
    with typing_at(shell, home) as typing:
        for begun, rest in (
            ("parley jour", "nal "),
            ("parley ping @al", "ice "),
            ("parley ping tcp:", "//127.0.0.1:7"),  # two fit
            ("parley ping tcp://127.0.0.1:71", "00 "),
            (f"parley ping {PLACE}#", f"{ALICE} "),
            ("parley ping --kex=x25519,", "x25519-mlkem768 "),
        ):
            typing.complete(begun, rest)


def hostile_offers(here: Path) -> list[tuple[str, str]]:
    """Names, each with a description; the names that may be completed begin with `safe.0`."""
    texts = [*(text.format(f"{here}/made-{n}") for n, text in enumerate(HOSTILE)), *UGLY]
    safe = [(f"safe.{number:03}", text) for number, text in enumerate(texts)]
    return [*safe, *((f"safe.{text}", text) for text in texts), *((text, text) for text in texts)]


LAST = f"safe.{len(HOSTILE) + len(UGLY) - 1:03}"


def test_hostile_names_and_descriptions_in_files(shell: str, home: Path) -> None:
    """Names in local files; the cache of offers has the format of an earlier version."""
    here = home / "here"
    offers = hostile_offers(here)
    (home / "topics").mkdir()
    kept = home / "topics" / f"{quote(PLACE, safe='')}.json"
    kept.write_text(json.dumps({"call": offers, "topic": offers}))
    known = KnownPeers(home / "known_peers")
    for number, text in enumerate(HOSTILE):
        name = text.format(f"made-{number}")
        (here / f"safe{name}.db").touch()
        if name.isprintable():
            address = f"unix:///{name}"
            Contexts(home / "contexts.toml").add(f"c{number}", Context(address=address))
            known.add(ALICE, name.replace(" ", "${IFS}"), datetime(2026, 3, 4, tzinfo=UTC))
    (here / "safe.db").touch()
    before = sorted(here.iterdir())
    with typing_at(shell, home) as typing:
        typing.complete(f"parley call {PLACE} ", LAST)
        typing.complete(f"parley sub {PLACE} safe", LAST)
        typing.complete(f"parley call {PLACE} safe.01", "safe.019")
        typing.complete("parley ping @", "alice")
        typing.complete("parley peers forget al", "ice ")
        typing.complete("parley bus groups sqlite:///saf", "e.db ")
    assert sorted(here.iterdir()) == before


def test_names_and_descriptions_of_a_hostile_node(
    shell: str, home: Path, processes: Processes
) -> None:
    """A node whose id is in the address: it is asked when TAB is pressed."""
    here, file = home / "here", home / "offers.json"
    sent = [offer for offer in hostile_offers(here) if "\ud800" not in "".join(offer)]
    file.write_text(json.dumps(sent))
    node = processes.start(str(file), command=[sys.executable, str(HOSTILE_NODE)])
    address = node.line()
    with typing_at(shell, home) as typing:
        last = [name for name, _ in sent if re.fullmatch(r"safe\.\d+", name)][-1]
        typing.complete(f"parley call '{address}' ", last)
        typing.complete(f"parley sub '{address}' safe", last)
    assert list(here.iterdir()) == []
