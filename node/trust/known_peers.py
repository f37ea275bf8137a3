"""The file of known peers: node ids, when each was first seen, and their names (docs/protocol.md
section 4).

The file is replaced atomically, after reading it again under a lock, so that processes don't lose
each other's changes. `node.trust.policies` decides whom to trust.

    line = node id (52 characters) blank first seen (UTC, ISO 8601) blank names
    names = comma-separated, or - for none; lines that are empty or begin with # are kept
"""

import logging
import os
import stat
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import KnownPeersError, os_reason
from parley._node.trust.files import home_directory, locked, replace_file

logger = logging.getLogger("parley.trust")

T = TypeVar("T")
PathLike = str | os.PathLike[str]

# About 13,000 peers.
MAX_FILE_SIZE: Final = 1_048_576
MAX_NAME_SIZE: Final = 1_024  # characters

# Seconds between two looks at watched files.
LOOK: Final = 1.0
# A changed file is used once two successive looks find it unchanged, since it may be incomplete;
# after this many looks it is used anyway.
MOST_LOOKS: Final = 5
# Seconds for which peers stay accepted while their file is unreadable.
UNREADABLE: Final = 30.0

_NO_NAMES: Final = "-"

# Device, inode, size, times of modification and change: identifies a state of the file.
_Stamp = tuple[int, int, int, int, int]


def default_known_peers() -> Path:
    """Return `known_peers` in $PARLEY_HOME or ~/.config/parley; ConfigError without a home."""
    return home_directory() / "known_peers"


def default_accounts() -> Path:
    """Return `accounts` in the same directory, a file of the same format; ConfigError likewise."""
    return home_directory() / "accounts"


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """A known peer: its node id, when it was first seen (UTC, to the second), and its names."""

    node_id: NodeId
    first_seen: datetime
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        first_seen = self.first_seen.isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"{self.node_id} {first_seen} {','.join(self.names) or _NO_NAMES}"


class KnownPeers:
    """The peers in the current state of a file; a missing file is empty.

    Every method may raise KnownPeersError: the file cannot be read or written, or a line is
    malformed (the error names the line). Reads and writes block for milliseconds.
    """

    def __init__(self, path: PathLike) -> None:
        # Resolved: otherwise a symbolic link would be replaced, and have a separate lock.
        self.path = Path(os.path.realpath(path))
        # One tuple, so that threads see a consistent stamp, bytes and lines.
        self._cached: tuple[_Stamp | None, bytes, _Lines] = _MISSING

    def lookup(self, node_id: NodeId) -> KnownPeer | None:
        """Return the peer with this node id."""
        return self._current().by_id.get(node_id)

    def by_name(self, name: str) -> KnownPeer | None:
        """Return the peer with this name."""
        return self._current().by_name.get(name)

    def __iter__(self) -> Iterator[KnownPeer]:
        """Iterate over the peers in the order of the file."""
        return iter(self._current().by_id.values())

    def __len__(self) -> int:
        return len(self._current().by_id)

    def add(self, node_id: NodeId, name: str | None, now: datetime) -> KnownPeer:
        """Add a peer, or a name to a known one, whose first-seen time stays.

        Raises:
            ValueError: `now` has no time zone.
            KnownPeersError: another peer has the name, the name is invalid, or the file is full.
        """
        if now.tzinfo is None:
            raise ValueError(f"`now` must be aware of its time zone, unlike {now}")
        added = () if name is None else (_checked_name(name),)
        with locked(self.path, KnownPeersError):
            lines = self._read()
            peer = lines.by_id.get(node_id)
            if peer is None:
                peer = KnownPeer(node_id, now.astimezone(UTC).replace(microsecond=0))
            names = tuple(dict.fromkeys(peer.names + added))
            return self._store(lines, replace(peer, names=names))

    def rename(self, node_id: NodeId, *names: str) -> KnownPeer:
        """Replace the names of a peer; KnownPeersError as for `add`."""
        checked = tuple(dict.fromkeys(_checked_name(name) for name in names))
        with locked(self.path, KnownPeersError):
            lines = self._read()
            peer = lines.by_id.get(node_id)
            if peer is None:
                raise KnownPeersError(f"{node_id} is not in {self.path}")
            return self._store(lines, replace(peer, names=checked))

    def forget(self, node_id: NodeId) -> bool:
        """Remove a peer; returns False if it is not known."""
        with locked(self.path, KnownPeersError):
            lines = self._read()
            if node_id not in lines.by_id:
                return False
            self._write(lines.without(node_id))
        return True

    def stamp(self) -> Hashable:
        """Return a value that identifies the file's state, without reading it; None without a
        file."""
        try:
            return _stamp(os.stat(self.path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from error

    def __repr__(self) -> str:
        return f"<KnownPeers {self.path}>"

    def _store(self, lines: "_Lines", peer: KnownPeer) -> KnownPeer:
        for name in peer.names:
            holder = lines.by_name.get(name)
            if holder is not None and holder.node_id != peer.node_id:
                raise KnownPeersError(f"{self.path} has the name {name} for {holder.node_id}")
        if lines.by_id.get(peer.node_id) != peer:
            self._write(lines.with_peer(peer))
        return peer

    def _current(self) -> "_Lines":
        """Return the file's lines, read again only if it has changed."""
        stamp, _, lines = self._cached
        try:
            if _stamp(os.stat(self.path)) == stamp:
                return lines
        except OSError:
            pass  # `_read` gets the same error and handles it
        return self._read()

    def _read(self) -> "_Lines":
        try:
            # Non-blocking: a pipe at that path would otherwise block forever.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise KnownPeersError(f"{self.path} is not a regular file")
                data = file.read(MAX_FILE_SIZE + 1)
        except FileNotFoundError:
            self._cached = _MISSING
            return self._cached[2]
        except OSError as error:
            raise self._unreadable(error) from error
        if len(data) > MAX_FILE_SIZE:
            raise KnownPeersError(f"{self.path} is longer than {MAX_FILE_SIZE} bytes")
        # Parsing a full file takes 150 ms; reading and comparing is cheap.
        _, old, lines = self._cached
        if data != old:
            lines = _parse(data, self.path)
        # The stamp is older than the data, so that a change in between is noticed.
        self._cached = _stamp(status), data, lines
        return lines

    def _unreadable(self, error: OSError) -> KnownPeersError:
        return KnownPeersError(f"cannot read {self.path}: {os_reason(error)}")

    def _write(self, lines: "_Lines") -> None:
        """Replace the file; the caller has the lock."""
        data = "".join(f"{text}\n" for text, _ in lines.items).encode("utf-8")
        if len(data) > MAX_FILE_SIZE:
            raise KnownPeersError(f"{self.path} is full ({MAX_FILE_SIZE} bytes)")
        status = replace_file(self.path, data, KnownPeersError)
        self._cached = _stamp(status), data, lines


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
                # Trust must not depend on guessing which of two lines is meant.
                if peer.node_id in ids:
                    raise KnownPeersError(f"this node id has a line already: {peer.node_id}")
                if len(set(peer.names)) != len(peer.names) or not names.isdisjoint(peer.names):
                    shown = ascii(",".join(peer.names))[:80]
                    raise KnownPeersError(f"a name stands here for the second time: {shown}")
                ids.add(peer.node_id)
                names.update(peer.names)
        except UnicodeDecodeError as error:
            raise KnownPeersError(f"{path}, line {number}: this is not UTF-8") from error
        except KnownPeersError as error:
            raise KnownPeersError(f"{path}, line {number}: {error}") from error
        items.append((text, peer))
    return _Lines(tuple(items))


def _peer(line: str) -> KnownPeer | None:
    """Read a line; None for an empty one or a comment."""
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    if len(fields) != 3:
        raise KnownPeersError(
            f"a line is a node id, a first-seen time and names (or -), not {len(fields)} fields"
        )
    try:
        node_id = NodeId.parse(fields[0])
    except IdentityError as error:
        raise KnownPeersError(str(error)) from error
    try:
        first_seen = datetime.fromisoformat(fields[1])
    except ValueError as error:
        shown = ascii(fields[1])[:40]
        raise KnownPeersError(f"the first-seen time is not ISO 8601: {shown}") from error
    if first_seen.utcoffset() != timedelta(0):
        raise KnownPeersError(
            f"the first-seen time is not in UTC (it ends in Z): {ascii(fields[1])[:40]}"
        )
    if fields[2] == _NO_NAMES:
        return KnownPeer(node_id, first_seen)
    names = tuple(_checked_name(name) for name in fields[2].split(","))
    return KnownPeer(node_id, first_seen, names)


def _checked_name(name: str) -> str:
    if not name or len(name) > MAX_NAME_SIZE:
        raise KnownPeersError(f"a name has 1 to {MAX_NAME_SIZE} characters, not {len(name)}")
    if name == _NO_NAMES or "," in name or " " in name or not name.isprintable():
        raise KnownPeersError(
            f"a name is not - and has neither commas nor blanks: {ascii(name)[:80]}"
        )
    return name


def _stamp(status: os.stat_result) -> _Stamp:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class WatchedFile:
    """Watches a file of known peers for changes."""

    __slots__ = ("failing_since", "is_still", "known_peers", "looks", "reviewed", "seen")

    def __init__(self, known_peers: KnownPeers) -> None:
        self.known_peers = known_peers
        # Unknown: the state when the first of its peers was accepted.
        self.seen: Hashable = self
        self.reviewed: Hashable = self
        self.is_still = False  # from one look to the next
        self.looks = 0  # since it was still
        self.failing_since: float | None = None

    def stamp(self) -> Hashable:
        """Return the file's state; may wait for the disk."""
        try:
            return self.known_peers.stamp()
        except KnownPeersError as error:
            return str(error)

    def is_due(self, stamp: Hashable) -> bool:
        """Whether its peers must be checked again, given its current state."""
        self.is_still, self.seen = stamp == self.seen, stamp
        if stamp == self.reviewed:
            self.looks, self.failing_since = 0, None
            return False
        self.looks = 0 if self.is_still else self.looks + 1
        return self.is_still or self.looks >= MOST_LOOKS

    def is_tolerated(self, error: KnownPeersError | None, now: float) -> bool:
        """Whether a read error is still to be ignored, because it hasn't lasted long enough."""
        if error is None:
            self.failing_since = None
            return False
        if self.failing_since is None:
            self.failing_since = now
            logger.warning(
                "%s: its peers stay accepted for %g s",
                error,
                UNREADABLE,
                extra={"event": "trust.file-unreadable"},
            )
        return now - self.failing_since < UNREADABLE


async def in_thread(threads: CapacityLimiter, function: Callable[[], T]) -> T | None:
    """Run `function` in a thread; returns None if it takes longer than `UNREADABLE` seconds."""
    with move_on_after(UNREADABLE):
        return await to_thread.run_sync(function, abandon_on_cancel=True, limiter=threads)
    return None
