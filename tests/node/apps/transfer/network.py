"""A receiver and a sender in one process, for tests of file transfers.

Everything stops at the end of its `async with`.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley._node.apps.transfer.progress import Transfer, Watcher
from parley._node.apps.transfer.protocol import FileOffer
from parley._node.apps.transfer.receiver import FileReceiver
from parley._node.apps.transfer.store import FileStore
from parley._node.errors import ParleyError
from parley._node.testing import ConnectedNodes
from tests.node.network import meeting

PATTERN = bytes(range(251)) * 4178  # slightly more than 1 MiB, and not a power of two


@dataclass
class Told(Watcher):
    """The calls of a watcher."""

    offsets: list[int] = field(default_factory=list)
    stops: list[Exception | None] = field(default_factory=list)
    news: list[bool] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    refused_names: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    at: int = 0

    def began(self, transfer: Transfer) -> None:
        self.offsets.append(transfer.offset)

    def advanced(self, transfer: Transfer) -> None:
        self.at = transfer.at

    def stopped(self, transfer: Transfer, error: Exception | None) -> None:
        self.stops.append(error)

    def finished(self, transfer: Transfer, *, new: bool) -> None:
        self.news.append(new)

    def refused(self, name: str, peer: str, error: ParleyError) -> None:
        self.refusals.append(getattr(error, "code", -1))
        self.refused_names.append(name)

    def retrying(self, name: str, error: Exception, number: int, pause: float) -> None:
        self.pauses.append(pause)


@dataclass
class Place:
    """A node that receives into `directory`, and a node connected to it."""

    directory: Path
    met: ConnectedNodes
    receiver: FileReceiver
    told: Told

    def names(self) -> list[str]:
        """The names in the directory."""
        return sorted(entry.name for entry in self.directory.iterdir())


@asynccontextmanager
async def receiving(
    tmp_path: Path, *, force: bool = False, max_size: int | None = None, **settings: Any
) -> AsyncIterator[Place]:
    """Run a receiver with its directory in `tmp_path`."""
    directory, told = tmp_path / "in", Told()
    directory.mkdir(exist_ok=True)
    with FileStore(directory, force=force, max_size=max_size) as store:
        async with meeting() as met:
            receiver = FileReceiver(store, told, **settings)
            receiver.offer_on(met.server)
            yield Place(directory, met, receiver, told)


def offered(content: bytes, name: str = "a") -> FileOffer:
    """Return the offer of a file with this content."""
    return FileOffer(name, len(content), hashlib.sha256(content).digest())


def written(path: Path, content: bytes = PATTERN) -> Path:
    """Create a file with this content."""
    path.write_bytes(content)
    return path
