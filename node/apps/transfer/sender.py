"""The sending side of `parley.file`: hashes a file and sends it over a stream of a peer.

The bytes that the receiver claims to have are verified against the file.
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
    """An open file to send. Its offered name is the last part of the path.

    Example:

        from pathlib import Path
        from parley.transfer import Source

        Path("hello.txt").write_text("hello")
        with await Source.open(Path("hello.txt")) as source:
            print(source.offer.size)  # 5
    """

    def __init__(self, path: Path, file: OpenFile, offer: FileOffer) -> None:
        self.path = path
        self.offer = offer
        self._file = file

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open a file and hash its content.

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
        """Close the file."""
        self._file.close()

    async def begins_with(self, resume: Resume) -> bool:
        """Return whether the file begins with the bytes that the receiver has."""
        if resume.offset == self.offer.size:
            return resume.sha256 == self.offer.sha256
        digest, size = await hash_prefix(self._file, resume.offset)
        return size == resume.offset and digest.digest() == resume.sha256

    async def read(self, offset: int) -> bytes:
        """Return the next bytes, at most 1 MiB.

        Raises:
            FileError: the file cannot be read, or has been truncated.
        """
        size = min(READ_PIECE, self.offer.size - offset)
        with _readable(self.path):
            piece = await run_sync(self._file.read, offset, size)
        if len(piece) != size:
            raise FileError(f"cannot send '{self.path}': it changed while it was sent; try again")
        return piece


def safe_name(path: Path) -> str:
    """Return the name under which a file is offered.

    Raises:
        ConfigError: it is a directory.
        UnsafeNameError: the name is not allowed.
    """
    if path.is_dir():
        raise ConfigError(f"cannot send '{path}': it is a directory; send files or an archive")
    try:
        return require_safe(path.name)
    except UnsafeNameError as error:
        raise UnsafeNameError(f"cannot send '{path}': {error}; rename it") from None


async def send_file(peer: Peer, source: Source, watcher: Watcher | None = None) -> Receipt:
    """Send a file, without the bytes that the receiver already has.

    Example:

        from tempfile import TemporaryDirectory
        from pathlib import Path
        from parley.transfer import FileReceiver, FileStore, Source, send_file

        with TemporaryDirectory() as directory, FileStore(Path(directory)) as store:
            FileReceiver(store).offer_on(node)
            path = Path(directory, "hello.txt")
            path.write_text("hello")
            async with await node.local() as local:
                with await Source.open(path) as source:
                    receipt = await send_file(local, source)

    Raises:
        CallRefused: the receiver refused, with a RefusalCode and a sentence in `data`.
        FileError: the file changed.
        StreamResetError, PeerClosedError: the transfer was interrupted; offer the file again.
        ParleyError: the receiver violated the protocol or reports another SHA-256.
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
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # don't block on a pipe
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileError(f"cannot send '{path}': it is not a regular file")
    return OpenFile(fd)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot read '{path}': {os_reason(error)}") from error


RETRIES: Final = 8
FIRST_PAUSE: Final = 0.5  # seconds, doubled for each retry in a row
LONGEST_PAUSE: Final = 30.0

_PASSING = frozenset(
    {
        CloseCode.CONNECTION_LOST,
        CloseCode.TIMEOUT,
        CloseCode.NORMAL,
        CloseCode.GOING_AWAY,
        CloseCode.OVERLOADED,
        CloseCode.TOO_MANY_STREAMS,
        CloseCode.BAD_RECORD,  # a damaged connection; the next one is checked as well
        CloseCode.CANCELLED,
    }
)


class OpenSessions(Protocol):
    """A source of sessions for sending a file, such as a `Link`."""

    async def ready(self, *, attempts: int | None = None) -> Peer:
        """Return the peer of an open session; raise the errors of `Link.ready`."""


class OneSession:
    """A single session, which is not reopened."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def ready(self, *, attempts: int | None = None) -> Peer:
        """Return the peer; raise PeerClosedError if its session has ended."""
        if not self._peer.is_open:
            raise self._peer.closed_error()
        return self._peer


async def send_over_link(
    link: OpenSessions, source: Source, watcher: Watcher, retries: int = RETRIES
) -> Receipt:
    """Send a file over a link, resuming after interruptions.

    Up to `retries` dials in a row may fail, and as many attempts in a row may transfer no bytes.
    After that, it raises the errors of `send_file` and `Link.ready`.
    """
    progress = _Progress(watcher)
    failures = 0
    while True:
        # The link counts the end of a session as the first attempt.
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
    """Return whether a failure with this code may be temporary."""
    return code == RefusalCode.BUSY if refused else code in _PASSING


class _Progress(Watcher):
    """Forwards progress to a watcher, and records whether bytes were transferred."""

    def __init__(self, watcher: Watcher) -> None:
        self.moved = False
        self._watcher = watcher
        self._furthest = 0

    def began(self, transfer: Transfer) -> None:
        # The receiver's offset shows how much was really transferred by earlier attempts.
        self.moved = transfer.offset > self._furthest
        self._furthest = max(self._furthest, transfer.offset)
        self._watcher.began(transfer)

    def advanced(self, transfer: Transfer) -> None:
        self._watcher.advanced(transfer)

    def stopped(self, transfer: Transfer, error: Exception | None) -> None:
        self._watcher.stopped(transfer, error)

    def finished(self, transfer: Transfer, *, new: bool) -> None:
        self._watcher.finished(transfer, new=new)
