"""Petnames: what a person calls other nodes, in their file of known peers.

A petname is the first name of a peer that is not an address. No node gives itself one. It is for
people to read, and stands beside an id, never in its place; nothing is decided by it.
"""

import os
import re
from pathlib import Path
from typing import Final

from parley._node.errors import ConfigError
from parley._node.trust.home import home_directory

_FULL: Final = r"(?<![\w#/@.])[a-z2-7]{52}(?!\w)"  # and not the end of an address
_SHORT: Final = r"(?<=\bpeer )[a-z2-7]{8}(?!\w)"  # as logs have it
_SHORT_SIZE: Final = 8
_IDS: Final = re.compile(f"{_FULL}|{_SHORT}")
_MAX_FILE_SIZE: Final = 1_048_576  # what `node.trust.known_peers` writes at most


class Petnames:
    """The petnames in a file of known peers, as it is now; none where it cannot be read."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._state: object = None
        self._names: dict[str, str] = {}

    @classmethod
    def of_home(cls) -> "Petnames":
        """Those of the file that commands use, unless they are told of another."""
        try:
            return cls(home_directory() / "known_peers")
        except ConfigError:
            return cls(None)

    def of(self, node_id: object) -> str | None:
        """The petname of a node by its id, or by the id's first 8 characters where those are no
        other's on record."""
        self._look()
        return self._names.get(str(node_id))

    def beside(self, node_id: object) -> str:
        """The id, and its petname in brackets if it has one."""
        name = self.of(node_id)
        return str(node_id) if name is None else f"{node_id} ({name})"

    def beside_short(self, node_id: object) -> str:
        """The first 8 characters of the id, and its petname in brackets if it has one."""
        name, short = self.of(node_id), str(node_id)[:_SHORT_SIZE]
        return short if name is None else f"{short} ({name})"

    def known_by(self, node_id: object) -> dict[str, str]:
        """The petname as a field of JSON, if there is one."""
        name = self.of(node_id)
        return {} if name is None else {"petname": name}

    def in_text(self, text: str) -> str:
        """A sentence or a line of a log with the petname beside each id that has one; addresses
        stay as they are, to be copied."""
        return _IDS.sub(lambda found: self.beside(found.group()), text)

    def _look(self) -> None:
        """Read the file, if it is not the one that was read."""
        if self._path is None:
            return
        try:
            status = os.stat(self._path)
            state = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            if state != self._state:
                with self._path.open("rb") as file:
                    text = file.read(_MAX_FILE_SIZE).decode(errors="replace")
                self._names, self._state = _read(text), state
        except OSError:
            self._names, self._state = {}, None


def _read(text: str) -> dict[str, str]:
    names: dict[str, str] = {}
    shared: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) != 3 or words[0].startswith("#"):
            continue
        node_id, short = words[0], words[0][:_SHORT_SIZE]
        called = [name for name in words[2].split(",") if "://" not in name and name != "-"]
        if short in names or short in shared:
            shared.add(short)
            names.pop(short, None)
        elif called:
            names[short] = called[0]
        else:
            shared.add(short)
        if called:
            names[node_id] = called[0]
    return names
