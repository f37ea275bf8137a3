"""The file of known peers: node IDs, the times when they were first seen, and their names
(docs/protocol.md section 4).

To change the file, a process rereads it under a lock and replaces it atomically, so that processes
don't lose each other's changes. The policies in `node.trust.policies` use it.

    line = node ID (52 characters) blank first seen (UTC, ISO 8601) blank names
    names = comma-separated, or - if the peer has no name; empty lines and # comments are preserved
"""

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import KnownPeersError
from parley._node.trust.files import (
    FileStamp,
    current_stamp,
    file_stamp,
    home_directory,
    locked,
    read_file,
    read_utc,
    replace_file,
    resolved,
    to_seconds,
    utc_text,
)

PathLike = str | os.PathLike[str]

# About 13,000 peers.
MAX_FILE_SIZE: Final = 1_048_576
MAX_NAME_SIZE: Final = 1_024  # characters

_NO_NAMES: Final = "-"


def default_known_peers() -> Path:
    """Return the path of `known_peers` in $PARLEY_HOME or ~/.config/parley.

    Raises:
        ConfigError: the home directory cannot be found.
    """
    return home_directory() / "known_peers"


def default_accounts() -> Path:
    """Return the path of `accounts`, a file of the same format in the same directory."""
    return home_directory() / "accounts"


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """A known peer: its node ID, the time when it was first seen (UTC, in seconds), and its
    names.
    """

    node_id: NodeId
    first_seen: datetime
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.node_id} {utc_text(self.first_seen)} {','.join(self.names) or _NO_NAMES}"


class KnownPeers:
    """The file of known peers at `path`; a missing file is empty.

    Processes can share the file: methods reread it when it has changed. Reads and writes block for
    milliseconds.

    Example:

        from datetime import UTC, datetime
        from tempfile import TemporaryDirectory
        from parley.trust import KnownPeers

        with TemporaryDirectory() as directory:
            known = KnownPeers(f"{directory}/known_peers")
            known.add(peer.node_id, "alice", datetime.now(UTC))
            assert known.by_name("alice").node_id == peer.node_id

    Raises:
        KnownPeersError: from every method, if the file cannot be read or written, or a line is
            malformed; the error names the line.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = resolved(path)
        # One tuple, so that threads see a consistent stamp, bytes and lines.
        self._cached: tuple[FileStamp | None, bytes, _Lines] = _MISSING

    def lookup(self, node_id: NodeId) -> KnownPeer | None:
        """Return the peer with this node ID, or None."""
        return self._current().by_id.get(node_id)

    def lookup_all(self, node_ids: Iterable[NodeId]) -> list[KnownPeer]:
        """Return those of some peers that are in the file."""
        return [peer for one in node_ids if (peer := self.lookup(one)) is not None]

    def by_name(self, name: str) -> KnownPeer | None:
        """Return the peer with this name, or None."""
        return self._current().by_name.get(name)

    def snapshot(self) -> Mapping[NodeId, KnownPeer]:
        """Return all peers by their node IDs, as they are now."""
        return self._current().by_id

    def __iter__(self) -> Iterator[KnownPeer]:
        """Iterate over the peers in the order of the file."""
        return iter(self._current().by_id.values())

    def __len__(self) -> int:
        return len(self._current().by_id)

    def add(self, node_id: NodeId, name: str | None, now: datetime) -> KnownPeer:
        """Add a peer, or add a name to a known peer, whose first-seen time stays unchanged.

        Raises:
            ValueError: `now` has no time zone.
            KnownPeersError: another peer has the name, the name is invalid, or the file is full.
        """
        if now.tzinfo is None:
            raise ValueError(f"invalid now {now}: it must have a time zone")
        added = () if name is None else (_checked_name(name),)
        with locked(self.path, KnownPeersError):
            lines = self._read()
            peer = lines.by_id.get(node_id)
            if peer is None:
                peer = KnownPeer(node_id, to_seconds(now))
            names = tuple(dict.fromkeys(peer.names + added))
            return self._store(lines, replace(peer, names=names))

    def rename(self, node_id: NodeId, *names: str) -> KnownPeer:
        """Replace the names of a peer.

        Raises:
            KnownPeersError: the peer is unknown, or as for `add`.
        """
        checked = tuple(dict.fromkeys(_checked_name(name) for name in names))
        with locked(self.path, KnownPeersError):
            lines = self._read()
            peer = lines.by_id.get(node_id)
            if peer is None:
                raise KnownPeersError(f"cannot rename {node_id}: it is not in {self.path}")
            return self._store(lines, replace(peer, names=checked))

    def forget(self, node_id: NodeId) -> bool:
        """Remove a peer; return False if it is not known."""
        with locked(self.path, KnownPeersError):
            lines = self._read()
            if node_id not in lines.by_id:
                return False
            self._write(lines.without(node_id))
        return True

    def stamp(self) -> Hashable:
        """Return a value that identifies the file's state without reading it, or None without a
        file.
        """
        return current_stamp(self.path, KnownPeersError)

    def __repr__(self) -> str:
        return f"<KnownPeers {self.path}>"

    def _store(self, lines: "_Lines", peer: KnownPeer) -> KnownPeer:
        for name in peer.names:
            holder = lines.by_name.get(name)
            if holder is not None and holder.node_id != peer.node_id:
                raise KnownPeersError(
                    f"cannot use the name {name!r} for {peer.node_id}: in {self.path} it belongs "
                    f"to {holder.node_id}; choose another name"
                )
        if lines.by_id.get(peer.node_id) != peer:
            self._write(lines.with_peer(peer))
        return peer

    def _current(self) -> "_Lines":
        """Return the file's lines, read again only if it has changed."""
        stamp, _, lines = self._cached
        is_current = stamp is not None and current_stamp(self.path, KnownPeersError) == stamp
        return lines if is_current else self._read()

    def _read(self) -> "_Lines":
        data, stamp = read_file(self.path, MAX_FILE_SIZE, KnownPeersError)
        # Parsing a full file takes 150 ms; reading and comparing is cheap.
        _, old, lines = self._cached
        if data != old:
            lines = _parse(data, self.path)
        # The stamp is older than the data, so that a change in between is noticed.
        self._cached = stamp, data, lines
        return lines

    def _write(self, lines: "_Lines") -> None:
        """Replace the file; the caller has the lock."""
        data = "".join(f"{text}\n" for text, _ in lines.items).encode("utf-8")
        if len(data) > MAX_FILE_SIZE:
            raise KnownPeersError(
                f"cannot write {self.path}: it would exceed {MAX_FILE_SIZE:,} bytes; remove peers"
            )
        status = replace_file(self.path, data, KnownPeersError)
        self._cached = file_stamp(status), data, lines


class _Lines:
    """The lines of a file, including comments, and their peers."""

    __slots__ = ("by_id", "by_name", "items")

    def __init__(self, items: tuple[tuple[str, KnownPeer | None], ...]) -> None:
        self.items = items
        peers = [peer for _, peer in items if peer is not None]
        self.by_id = {peer.node_id: peer for peer in peers}
        self.by_name = {name: peer for peer in peers for name in peer.names}

    def with_peer(self, peer: KnownPeer) -> "_Lines":
        """Return the lines with this peer's replaced, or added at the end."""
        line = (str(peer), peer)
        if peer.node_id not in self.by_id:
            return _Lines((*self.items, line))
        return _Lines(
            tuple(
                line if old is not None and old.node_id == peer.node_id else (text, old)
                for text, old in self.items
            )
        )

    def without(self, node_id: NodeId) -> "_Lines":
        """Return the lines without this peer's."""
        return _Lines(
            tuple((text, old) for text, old in self.items if old is None or old.node_id != node_id)
        )


_MISSING: Final[tuple[None, bytes, _Lines]] = (None, b"", _Lines(()))


def _parse(data: bytes, path: Path) -> _Lines:
    items: list[tuple[str, KnownPeer | None]] = []
    ids: set[NodeId] = set()
    names: set[str] = set()
    # Not `splitlines`, which splits at characters that editors don't show as line ends.
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], 1):
        try:
            text = raw.decode("utf-8")
            peer = _peer(text)
            if peer is not None:
                # Otherwise trust would depend on which of the two lines is used.
                if peer.node_id in ids:
                    raise KnownPeersError(f"node ID {peer.node_id} is already on another line")
                if len(set(peer.names)) != len(peer.names) or not names.isdisjoint(peer.names):
                    shown = ascii(",".join(peer.names))[:80]
                    raise KnownPeersError(f"a name is used twice: {shown}")
                ids.add(peer.node_id)
                names.update(peer.names)
        except UnicodeDecodeError as error:
            raise KnownPeersError(f"{path}, line {number}: not valid UTF-8") from error
        except KnownPeersError as error:
            raise KnownPeersError(f"{path}, line {number}: {error}") from error
        items.append((text, peer))
    return _Lines(tuple(items))


def _peer(line: str) -> KnownPeer | None:
    """Parse a line; return None for an empty line or a comment."""
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    if len(fields) != 3:
        raise KnownPeersError(
            "expected three fields, a node ID, a first-seen time and names (or -), but found "
            f"{len(fields)}"
        )
    try:
        node_id = NodeId.parse(fields[0])
    except IdentityError as error:
        raise KnownPeersError(str(error)) from error
    first_seen = read_utc(fields[1], "first-seen time", KnownPeersError)
    if fields[2] == _NO_NAMES:
        return KnownPeer(node_id, first_seen)
    names = tuple(_checked_name(name) for name in fields[2].split(","))
    return KnownPeer(node_id, first_seen, names)


def _checked_name(name: str) -> str:
    if not name or len(name) > MAX_NAME_SIZE:
        raise KnownPeersError(
            f"invalid name {ascii(name)[:80]}: expected 1 to {MAX_NAME_SIZE:,} characters, not "
            f"{len(name):,}"
        )
    if name == _NO_NAMES or "," in name or " " in name or not name.isprintable():
        raise KnownPeersError(
            f"invalid name {ascii(name)[:80]}: expected printable characters without commas and "
            "spaces, and not '-' alone"
        )
    return name
