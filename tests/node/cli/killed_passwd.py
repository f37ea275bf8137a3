"""Kill `parley id passwd` before each of its system calls, one process for each call.

A program of its own, because only a process without threads can fork safely. It forks a child for
each system call, follows it with ptrace up to that call, kills it there with SIGKILL, and checks
the file. A kill after a call has the same effect as one before the next call.

    python -m tests.node.cli.killed_passwd DIRECTORY KIND [--no-passphrase]

KIND is identity, recovery or auditor. Prints the counts as JSON.
"""

import ctypes
import json
import os
import signal
import stat
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final, NamedTuple

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.errors import WrongPassphraseError
from parley._crypto.identity import Identity
from parley._crypto.keyfile import (
    PassphraseCost,
    change_passphrase,
    is_encrypted,
    load_auditor_key,
    load_identity,
    load_recovery,
    save_auditor_key,
    save_identity,
    save_recovery,
)
from parley._node.cli.main import main

CHEAP: Final = PassphraseCost(passes=1, memory_kib=8)
OLD, NEW, NEXT = b"correct horse", b"battery staple", b"tumor chicago"

# Of <sys/ptrace.h>.
TRACE_ME: Final = 0
CONTINUE_TO_CALL: Final = 24
SET_OPTIONS: Final = 0x4200
MARK_CALLS: Final = 0x1
KILL_WITH_TRACER: Final = 0x100000
CALL: Final = signal.SIGTRAP | 0x80  # how a system call is reported

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


def ptrace(request: int, pid: int, data: int = 0) -> None:
    if _ptrace(request, pid, None, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def killed_at(number: int) -> bool:
    """Run the command of `sys.argv` in a child and kill it before system call `number`; return
    False if it has fewer calls.
    """
    child = os.fork()
    if child == 0:
        run_traced()
    os.waitpid(child, 0)
    ptrace(SET_OPTIONS, child, MARK_CALLS | KILL_WITH_TRACER)
    calls, entered, delivered = 0, False, 0
    while True:
        ptrace(CONTINUE_TO_CALL, child, delivered)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            assert os.waitstatus_to_exitcode(status) == 0, status
            return False
        delivered = 0 if os.WSTOPSIG(status) == CALL else os.WSTOPSIG(status)
        if delivered:
            continue
        entered = not entered  # each call is reported when it begins, and when it ends
        calls += entered
        if calls == number:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True


def run_here() -> None:
    """Run the command once in this process, which imports the modules for all children."""
    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
        try:
            main()
        except SystemExit as ended:
            if ended.code != 0:
                raise AssertionError(f"the command failed: {ended.code}") from ended


def run_traced() -> None:
    """Run the command in this child, and end it."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        ptrace(TRACE_ME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        main()
    except SystemExit as ended:
        os._exit(ended.code if isinstance(ended.code, int) else 1)
    finally:
        os._exit(1)


class Kind(NamedTuple):
    """How a kind of file is created under the old passphrase, and what it must contain."""

    create: Callable[[Path], None]
    read: Callable[[Path, bytes | None], object]
    content: object


def kinds() -> dict[str, Kind]:
    identity, recovery = Identity.create_recoverable()
    auditor = AuditorPrivateKey.create()
    return {
        "identity": Kind(
            lambda path: save_identity(path, identity, OLD, cost=CHEAP),
            lambda path, passphrase: load_identity(path, passphrase).node_id,
            identity.node_id,
        ),
        "recovery": Kind(
            lambda path: save_recovery(path, recovery, OLD, cost=CHEAP),
            lambda path, passphrase: load_recovery(path, passphrase).node_id,
            recovery.node_id,
        ),
        "auditor": Kind(
            lambda path: save_auditor_key(path, auditor, OLD, cost=CHEAP),
            lambda path, passphrase: load_auditor_key(path, passphrase).public,
            auditor.public,
        ),
    }


def opens(kind: Kind, path: Path, passphrase: bytes | None) -> bool:
    if is_encrypted(path) != (passphrase is not None):
        return False
    try:
        return kind.read(path, passphrase) == kind.content
    except WrongPassphraseError:
        return False


def checked(kind: Kind, path: Path, new: bytes | None) -> dict[str, int]:
    """Return what was found after a kill, and change the passphrase once more."""
    found = {name for name, each in (("old", OLD), ("new", new)) if opens(kind, path, each)}
    assert len(found) == 1, found
    files = list(path.parent.iterdir())
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    change_passphrase(path, OLD if "old" in found else new, NEXT, cost=CHEAP)
    assert opens(kind, path, NEXT)
    assert os.listdir(path.parent) == [path.name]
    return {"kills": 1, **dict.fromkeys(found, 1), "leftovers": len(files) - 1}


def run(directory: Path, kind: Kind, *, removes: bool) -> Counter[str]:
    """Kill the command at each call; return how often each state was found."""
    path, old, new = directory / "keys" / "node.key", directory / "old", directory / "new"
    path.parent.mkdir()
    for file, passphrase in ((old, OLD), (new, NEW)):
        file.touch(0o600)
        file.write_bytes(passphrase)
    sys.argv = ["parley", "id", "passwd", str(path), "--passphrase-file", str(old)]
    sys.argv += ["--no-passphrase"] if removes else ["--new-passphrase-file", str(new)]
    target = None if removes else NEW
    counts: Counter[str] = Counter()
    kind.create(path)
    run_here()
    for number in range(1, 100_000):
        path.unlink(missing_ok=True)
        kind.create(path)
        if not killed_at(number):
            assert opens(kind, path, target)
            return counts
        counts.update(checked(kind, path, target))
    raise AssertionError("the command does not end")


if __name__ == "__main__":
    place, name, *options = sys.argv[1:]
    print(json.dumps(run(Path(place), kinds()[name], removes=options == ["--no-passphrase"])))
