"""Petnames from the user's file of known peers.

A petname is the user's own name for a peer: its first name that isn't an address. It is displayed
next to a node ID, never in its place, and no decision depends on it. The successor of an ended ID
has the petname of that ID, unless it has one itself.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Final

from parley._node.errors import ConfigError, KeyStatementsError, KnownPeersError
from parley._node.trust.ended_ids import inheritances
from parley._node.trust.files import current_stamp, home_directory, read_file
from parley._node.trust.key_statements import read_table

# Neither at the end of an address nor in a command, because both can be copied.
_FULL: Final = r"(?<![\w#/@.])(?<!peers (?:accept|forget|refuse) )(?<!--as )[a-z2-7]{52}(?!\w)"
_SHORT: Final = r"(?<=\bpeer )[a-z2-7]{8}(?!\w)"  # as in logs
_SHORT_SIZE: Final = 8
_IDS: Final = re.compile(f"{_FULL}|{_SHORT}")
_MAX_FILE_SIZE: Final = 1_048_576  # the maximum that `node.trust.known_peers` writes


class Petnames:
    """The petnames in the current state of a file of known peers; empty if it is unreadable.

    `statements` is the file of key statements, which names the successors of known peers. `follow`
    is as for `KeyStatements`: otherwise only a successor that a person accepted has the petname of
    an ended ID.
    """

    def __init__(
        self, path: Path | None, statements: Path | None = None, *, follow: bool = True
    ) -> None:
        self._path = path
        self._statements = statements
        self._follow = follow
        self._states: tuple[object, object] = (None, None)
        self._names: dict[str, str] = {}
        self._successors: list[tuple[str, str]] = []  # ended IDs with their successors

    @classmethod
    def of_home(cls, *, follow: bool = True) -> "Petnames":
        """Return the petnames of the default files of commands."""
        try:
            home = home_directory()
        except ConfigError:
            return cls(None)
        return cls(home / "known_peers", home / "key_statements", follow=follow)

    def of(self, node_id: object) -> str | None:
        """Return the petname of a node, given its ID or the first 8 characters of it if they are
        unambiguous.
        """
        self._look()
        return self._names.get(str(node_id))

    def beside(self, node_id: object) -> str:
        """Return the id, followed by its petname in brackets if it has one."""
        name = self.of(node_id)
        return str(node_id) if name is None else f"{node_id} ({name})"

    def beside_short(self, node_id: object) -> str:
        """Return the first 8 characters of the ID, followed by the petname in brackets if there is
        one.
        """
        name, short = self.of(node_id), str(node_id)[:_SHORT_SIZE]
        return short if name is None else f"{short} ({name})"

    def known_by(self, node_id: object) -> dict[str, str]:
        """Return the petname as a JSON field, if there is one."""
        name = self.of(node_id)
        return {} if name is None else {"petname": name}

    def in_text(self, text: str) -> str:
        """Add the petname after each node ID in a text; addresses and commands, which can be
        copied, stay unchanged.
        """
        return _IDS.sub(lambda found: self.beside(found.group()), text)

    def _look(self) -> None:
        """Reread the files that have changed."""
        states = _state(self._path), _state(self._statements)
        if states == self._states:
            return
        # Not for each new peer: parsing 1,000 statements takes 100 ms.
        if self._statements is not None and states[1] != self._states[1]:
            self._successors = _read_successors(self._statements, follow=self._follow)
        names = {} if self._path is None else _read(self._path)
        for origin, successor in self._successors:
            name = names.get(origin)
            if name and not names.get(successor):
                names[successor] = name
        self._names, self._states = _with_short_ids(names), states


def _state(path: Path | None) -> object:
    """Return a value that identifies the state of a file, or None if there is none."""
    try:
        return None if path is None else current_stamp(path, KnownPeersError)
    except KnownPeersError:
        return None


def _read(path: Path) -> dict[str, str]:
    """Return the petname of each ID in the file, empty if it has none."""
    try:
        data, _ = read_file(path, _MAX_FILE_SIZE, KnownPeersError)
    except KnownPeersError:
        return {}  # the policy that reads it reports it
    text = data.decode(errors="replace")
    names: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and not words[0].startswith("#"):
            called = [name for name in words[2].split(",") if "://" not in name and name != "-"]
            names[words[0]] = called[0] if called else ""
    return names


def _read_successors(statements: Path, *, follow: bool) -> list[tuple[str, str]]:
    """Return each ended ID with each of its successors."""
    try:
        table = read_table(statements, follow=follow)
    except KeyStatementsError:
        return []  # a node reports it
    return [(str(origin), str(successor)) for origin, successor in inheritances(table)]


def _with_short_ids(names: dict[str, str]) -> dict[str, str]:
    """Return the petnames by ID, and by its first characters if no other ID begins with them."""
    counts = Counter(node_id[:_SHORT_SIZE] for node_id in names)
    short = {
        node_id[:_SHORT_SIZE]: name
        for node_id, name in names.items()
        if counts[node_id[:_SHORT_SIZE]] == 1
    }
    return {node_id: name for node_id, name in {**short, **names}.items() if name}
