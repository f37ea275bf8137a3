"""The sending side of `parley.file`: a hashed file, sent over a peer's stream.

What the receiver says that it has is checked against the file, before and after.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import anyio
from anyio.to_thread import run_sync

from parley._node.apps.transfer.files import OpenFile
from parley._node.apps.transfer.hashes import READ_PIECE, hash_prefix
from parley._node.apps.transfer.names import UnsafeNameError, require_safe
from parley._node.apps.transfer.progress import Transfer, Watcher
from parley._node.apps.transfer.protocol import (
    LABEL,
    Begin,
    FileOffer,
    MessageError,
    Receipt,
    RefusalCode,
    Resume,
    read_message,
)
from parley._node.errors import (
    CallRefused,
    ConfigError,
    FileError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    os_reason,
)
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import FIRST_APPLICATION_CODE, CloseCode
from parley._node.remote.stream import Stream


class Source:
    """A file to send, open from `open` to `close`; its name is the path's last part."""

    def __init__(self, path: Path, file: OpenFile, offer: FileOffer) -> None:
        self.path = path
        self.offer = offer
        self._file = file

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open a file and hash all of it.

        Raises:
            ConfigError: it is a directory, or its name is not allowed (UnsafeNameError).
            FileError: it cannot be read, or is not a regular file.
        """
        name = safe_name(path)
        with _readable(path):
            file = await run_sync(_open, path)
        try:
            with _readable(path):
                size = file.status().st_size
                digest, hashed = await hash_prefix(file, size)
                more = await run_sync(file.read, size, 1)
            if hashed != size or more:
                raise FileError(
                    f"cannot send '{path}': its size is {size:,} bytes, but it has "
                    f"{'more' if more else f'{hashed:,}'}; if it is being written, wait for that, "
                    "and copy a file of /proc or /sys to an ordinary file first"
                )
        except BaseException:
            file.close()
            raise
        return cls(path, file, FileOffer(name, size, digest.digest()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    async def begins_with(self, resume: Resume) -> bool:
        """Whether the file begins with what the receiver has."""
        if resume.offset == self.offer.size:
            return resume.sha256 == self.offer.sha256
        digest, size = await hash_prefix(self._file, resume.offset)
        return size == resume.offset and digest.digest() == resume.sha256

    async def read(self, offset: int) -> bytes:
        """The next bytes, at most 1 MiB.

        Raises:
            FileError: it cannot be read, or became shorter.
        """
        size = min(READ_PIECE, self.offer.size - offset)
        with _readable(self.path):
            piece = await run_sync(self._file.read, offset, size)
        if len(piece) != size:
            raise FileError(f"{self.path} changed while it was being sent")
        return piece


def safe_name(path: Path) -> str:
    """The name under which a file is offered.

    Raises:
        ConfigError: it is a directory. UnsafeNameError: the name is not allowed.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a directory; send files, or an archive of it")
    try:
        return require_safe(path.name)
    except UnsafeNameError as error:
        raise UnsafeNameError(f"{path}: {error}; rename it first") from None


async def send_file(peer: Peer, source: Source, watcher: Watcher | None = None) -> Receipt:
    """Send a file, or what the receiver has not of it.

    Raises:
        CallRefused: with a RefusalCode; `data` is a sentence. FileError: it changed.
        StreamResetError, PeerClosedError: it was cut; offer it again. ParleyError: the
            receiver does not keep to the protocol, or says another SHA-256.
    """
    watcher = watcher or Watcher()
    transfer = Transfer(source.offer, str(peer.node_id or peer.name))
    try:
        async with peer.open_stream(LABEL) as stream:
            receipt = await _send(stream, source, transfer, watcher)
    except StreamResetError as error:
        if error.code == CloseCode.NO_HANDLER:
            text = f"{peer} doesn't receive files: run `parley receive` or a FileReceiver there"
            error = StreamResetError(error.code, text)
        watcher.stopped(transfer, error)
        if error.code < FIRST_APPLICATION_CODE:
            raise error
        refused = CallRefused(error.code, error.text)
        refused.received = True
        raise refused from error
    except BaseException as error:
        watcher.stopped(transfer, error if isinstance(error, Exception) else None)
        raise
    watcher.finished(transfer, new=receipt.new)
    return receipt


async def _send(stream: Stream, source: Source, transfer: Transfer, watcher: Watcher) -> Receipt:
    offer = source.offer
    await stream.send(offer.encode())
    resume = await read_message(stream, Resume.decode)
    if resume.offset > offer.size:
        raise MessageError(
            f"the receiver has {resume.offset:,} bytes of a file of {offer.size:,} bytes"
        )
    begin = Begin(resume.offset if await source.begins_with(resume) else 0)
    await stream.send(begin.encode())
    transfer.offset = transfer.at = begin.offset
    watcher.began(transfer)
    while transfer.at < offer.size:
        piece = await source.read(transfer.at)
        await stream.send(piece)
        transfer.at += len(piece)
        watcher.advanced(transfer)
    await stream.send_eof()
    receipt = await read_message(stream, Receipt.decode)
    if receipt.sha256 != offer.sha256:
        raise ParleyError(
            f"the file {offer.name!r} was altered in transit: its SHA-256 is "
            f"{offer.sha256.hex()}, the receiver's is {receipt.sha256.hex()}; send it again"
        )
    return receipt


def _open(path: Path) -> OpenFile:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileError(f"{path} is not a regular file")
    return OpenFile(fd)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot read {path}: {os_reason(error)}") from error


RETRIES: Final = 8
FIRST_PAUSE: Final = 0.5  # seconds; each next one in a row is twice as long
LONGEST_PAUSE: Final = 30.0

_PASSING = frozenset(
    {
        CloseCode.CONNECTION_LOST,
        CloseCode.TIMEOUT,
        CloseCode.NORMAL,
        CloseCode.GOING_AWAY,
        CloseCode.OVERLOADED,
        CloseCode.TOO_MANY_STREAMS,
        CloseCode.BAD_RECORD,  # a broken line; what comes over the next is checked likewise
        CloseCode.CANCELLED,
    }
)


class OpenSessions(Protocol):
    """Where the session comes from over which a file is sent: a `Link` is one."""

    async def ready(self, *, attempts: int | None = None) -> Peer:
        """The peer of a session that is open; raises as `Link.ready`."""


class OneSession:
    """A session that is not made anew once it is over."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def ready(self, *, attempts: int | None = None) -> Peer:
        """The peer; PeerClosedError once its session is over."""
        if not self._peer.is_open:
            raise self._peer.closed_error()
        return self._peer


async def send_over_link(
    link: OpenSessions, source: Source, watcher: Watcher, retries: int = RETRIES
) -> Receipt:
    """Send a file, going on after cuts. So many dials may fail in a row, and so many tries bring
    nothing across; then it raises as `send_file` and `Link.ready`."""
    progress = _Progress(watcher)
    failures = 0
    while True:
        # The end of a session is the first of the attempts that the link counts.
        peer = await link.ready(attempts=retries + 1)
        progress.moved = False
        try:
            return await send_file(peer, source, progress)
        except (CallRefused, PeerClosedError, StreamResetError) as error:
            failures = 1 if progress.moved else failures + 1
            passing = is_passing(error.code, refused=isinstance(error, CallRefused))
            if not passing or failures > retries:
                raise
            if not isinstance(error, PeerClosedError):
                pause = min(FIRST_PAUSE * 2.0 ** (failures - 1), LONGEST_PAUSE)
                watcher.retrying(source.offer.name, error, failures, pause)
                await anyio.sleep(pause)


def is_passing(code: int, *, refused: bool) -> bool:
    """Whether what ended a try with this code may be over at the next."""
    return code == RefusalCode.BUSY if refused else code in _PASSING


class _Progress(Watcher):
    """Hands on what tries tell, and sees whether bytes go across."""

    def __init__(self, watcher: Watcher) -> None:
        self.moved = False
        self._watcher = watcher
        self._furthest = 0

    def began(self, transfer: Transfer) -> None:
        # What the receiver has is what really went across in earlier tries.
        self.moved = transfer.offset > self._furthest
        self._furthest = max(self._furthest, transfer.offset)
        self._watcher.began(transfer)

    def advanced(self, transfer: Transfer) -> None:
        self._watcher.advanced(transfer)

    def stopped(self, transfer: Transfer, error: Exception | None) -> None:
        self._watcher.stopped(transfer, error)

    def finished(self, transfer: Transfer, *, new: bool) -> None:
        self._watcher.finished(transfer, new=new)
