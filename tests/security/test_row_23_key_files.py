"""Row 23, lax key files: a file that other users can access is refused, and is private from its
first byte. A forked process shares no random state with its child.

tests/crypto/test_keyfile.py covers owners, links, a closed umask and files that are not key files.
tests/crypto/test_randomness.py covers every primitive that draws random bytes
(`test_fork_shares_no_random_state`). tests/node/cli/test_identity.py covers `parley id new`. These
tests cover the view of other users of the machine, and whole programs and handshakes.
"""

import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import PassphraseCost, change_passphrase, save_identity

ROOT: Final = Path(__file__).parents[2]
CHEAP: Final = PassphraseCost(passes=1, memory_kib=8)
PASSPHRASE: Final = b"correct horse"
IDENTITY: Final = Identity.create()

both_forms = pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@both_forms
@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_at_no_moment_can_others_open_it(
    tmp_path: Path, passphrase: bytes | None, mask: int
) -> None:
    """It is checked before and after every system call about files while the key file is
    created, and replaced by one with another passphrase.
    """
    path = tmp_path / "identity.key"
    seen: list[tuple[int, int]] = []

    def look() -> None:
        for found in tmp_path.iterdir():
            status = found.stat()
            seen.append((stat.S_IMODE(status.st_mode), status.st_size))

    def watched(name: str) -> Any:
        original = getattr(os, name)

        def call(*args: Any, **settings: Any) -> Any:
            look()
            result = original(*args, **settings)
            look()
            return result

        return patch.object(os, name, call)

    with umask(mask), watched("open"), watched("fchmod"), watched("fsync"):
        save_identity(path, IDENTITY, passphrase, cost=CHEAP)
        look()
        change_passphrase(path, passphrase, b"battery staple", cost=CHEAP)
        look()
    assert len(seen) >= 5
    # A umask may remove permissions of the owner for a moment; other users never have any.
    assert [mode for mode, _ in seen if mode & 0o077] == []
    assert {size for mode, size in seen if mode != 0o600} <= {0}
    assert seen[-1] == (0o600, path.stat().st_size)
    assert seen[0][1] == 0  # it existed, and was private, before its first byte


def parley(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in another process."""
    environ = {**os.environ, "PARLEY_HOME": str(home)}
    command = [sys.executable, "-m", "parley", *args]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    "command",
    [
        ("id", "show", "KEY"),
        ("serve", "--identity", "KEY", "--listen", "tcp://127.0.0.1:0"),
        ("call", "tcp://127.0.0.1:1", "parley.echo", "--identity", "KEY", "--trust", "any"),
    ],
    ids=lambda command: command[0],
)
def test_no_command_takes_a_file_that_others_can_read(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "identity.key"
    save_identity(path, IDENTITY)
    path.chmod(0o640)
    words = [str(path) if word == "KEY" else word for word in command]
    run = parley(*words, home=tmp_path)
    assert run.returncode not in (0, 2), run.stderr  # 2: the arguments are invalid
    assert f"cannot use the key file '{path}'" in " ".join(run.stderr.split())


# A fork: one process that has already drawn random bytes, and its children, each create an
# identity, a key file's salt and nonce, and a whole handshake of either side.
FORKS: Final = """
import os, sys, tempfile
from hashlib import sha256
from parley._crypto.identity import Identity
from parley._crypto.keyfile import PassphraseCost, save_identity
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.reports import PeerIdentified

OURS, THEIRS = Identity.create(), Identity.create()

def draw():
    yield Identity.create().node_id
    path = tempfile.mktemp()
    save_identity(path, OURS, b"x", cost=PassphraseCost(1, 8))
    header = open(path, "rb").read()[26:66]
    os.unlink(path)
    yield header[:16]
    yield header[16:]
    a = Connection(CoreConfig(identity=OURS), initiator=True, now=0.0)
    b = Connection(CoreConfig(identity=THEIRS), initiator=False, now=0.0)
    for _ in range(4):
        for one, other in ((a, b), (b, a)):
            sent = one.data_to_send(0.0)
            if sent:
                yield sent
                other.receive_data(sent, 0.0)
            for side in (one, other):
                if any(isinstance(report, PeerIdentified) for report in side.reports()):
                    side.accept_peer(0.0)
    assert a.state.name == b.state.name == "OPEN"

def show():
    print(*(sha256(value).hexdigest() for value in draw()), flush=True)

list(draw())
for _ in range(2):
    child = os.fork()
    if child == 0:
        show()
        os._exit(0)
    os.waitpid(child, 0)
show()
"""


def test_forks_share_nothing_of_what_they_make() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FORKS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    made = [line.split() for line in run.stdout.splitlines()]
    assert len(made) == 3
    # An identity, a salt, a nonce, and three flights.
    assert {len(values) for values in made} == {6}
    counts = Counter(value for values in made for value in values)
    assert [value for value, count in counts.items() if count > 1] == []
