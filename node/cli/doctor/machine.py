"""Checks of `parley doctor` on this machine: versions, algorithms, files, limits.

The checks change nothing. A check that cannot be made is reported as a finding.
"""

import os
import platform
import resource
import stat
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from parley._crypto.selftest import library_versions, self_test
from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, KnownPeersError, os_reason
from parley._node.protocol import session
from parley._node.trust.known_peers import KnownPeers, default_known_peers

# File descriptors besides connections: standard files, the event loop, modules, logs.
SPARE_DESCRIPTORS: Final = 64
FEW_DESCRIPTORS: Final = 256
MOST_FILES: Final = 1_000  # files of the home directory to check

_OPTIONAL: Final = ("uvloop", "trio", "blake3")


def versions() -> dict[str, str | None]:
    """Return the versions of the software in use; None for optional packages that are missing."""
    found: dict[str, str | None] = {
        "parley": installed_version("parley-node"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "core": core_kind(),
        "platform": platform.platform(),
        "anyio": installed_version("anyio"),
        **library_versions(),
    }
    return found | {name: installed_version(name) for name in _OPTIONAL}


def core_kind() -> str:
    """Return whether the protocol core is compiled."""
    compiled = (session.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))
    return "compiled" if compiled else "pure Python"


def check_machine() -> Iterator[Diagnosis]:
    """Yield the findings that need no connection."""
    yield from check_algorithms(self_test())
    yield from check_home()
    yield check_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def check_algorithms(outcomes: Iterable[tuple[str, str, str | None]]) -> Iterator[Diagnosis]:
    """Yield a finding for each broken algorithm, and one for the working ones."""
    broken = False
    working = []
    for parameter, name, wrong in outcomes:
        if wrong is None:
            working.append(name)
            continue
        broken = True
        mend = f"update cryptography and PyNaCl, or leave {name} out of --{parameter}"
        yield Diagnosis(Level.PROBLEM, f"{parameter} {name}", wrong, mend)
    text = f"{', '.join(working) or 'none'} work here"
    yield Diagnosis(Level.NOTE if broken else Level.OK, "algorithms", text)


def check_home() -> Iterator[Diagnosis]:
    """Check owner and permissions of the directory of known peers and keys."""
    try:
        known_peers = default_known_peers()
    except ConfigError as error:
        yield Diagnosis(Level.PROBLEM, "home", str(error), "export PARLEY_HOME=DIRECTORY")
        return
    home = known_peers.parent
    if not home.exists():
        yield Diagnosis(Level.OK, "home", f"{home} does not exist yet; it is created when needed")
        return
    try:
        paths = [home, *sorted(home.iterdir())[:MOST_FILES]]
        found = [finding for path in paths for finding in _check_path(path)]
    except OSError as error:
        text = f"cannot read {home}: {os_reason(error)}"
        yield Diagnosis(Level.PROBLEM, "home", text, "set PARLEY_HOME to a private directory")
        return
    yield from found
    yield from _check_known_peers(known_peers)
    if not found:
        yield Diagnosis(Level.OK, "home", f"{home} is accessible to you only")


def check_descriptors(soft: int) -> Diagnosis:
    """Check the limit of open files and sockets (`ulimit -n`)."""
    wanted = NodeConfig().max_connections + SPARE_DESCRIPTORS
    mend = f"ulimit -n {wanted}"
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return Diagnosis(Level.OK, "descriptors", "the node's limit of connections")
    text = f"{soft:,} file descriptors: about {max(0, soft - SPARE_DESCRIPTORS):,} connections"
    if soft < FEW_DESCRIPTORS:
        return Diagnosis(Level.WEAK, "descriptors", text, mend)
    text += "; a server accepts 10,000 by default"
    return Diagnosis(Level.NOTE, "descriptors", text, mend)


def _check_path(path: Path) -> Iterator[Diagnosis]:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or not (
        stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    ):
        return
    subject = f"file {path}"
    if status.st_uid != os.geteuid():
        text = "another user owns it, and can change your identity and known peers"
        yield Diagnosis(Level.PROBLEM, subject, text, f"chown {os.geteuid()} '{path}'")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        text = "other users can change it, including your identity and known peers"
        yield Diagnosis(Level.PROBLEM, subject, text, f"chmod go-w '{path}'")
    elif status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) and stat.S_ISREG(status.st_mode):
        text = "other users can read it: known peers, or a key, which Parley then refuses to use"
        yield Diagnosis(Level.WEAK, subject, text, f"chmod go= '{path}'")


def _check_known_peers(path: Path) -> Iterator[Diagnosis]:
    try:
        count = len(KnownPeers(path))
    except KnownPeersError as error:
        yield Diagnosis(Level.PROBLEM, "known peers", str(error), f"correct or remove {path}")
    else:
        yield Diagnosis(Level.OK, "known peers", f"{count:,} in {path}")


def installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
