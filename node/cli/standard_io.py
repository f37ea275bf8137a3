"""Read standard input line by line, and write standard output without blocking the event loop.

Both can be cancelled, because no thread is used.
"""

import io
import os
import select
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TextIO

import anyio
from anyio.lowlevel import checkpoint

from parley._node.cli.output import stdout_errors
from parley._node.errors import FileError, os_reason

_PIECE = 65_536


async def read_lines(descriptor: int, limit: int) -> AsyncGenerator[bytes]:
    """Yield the lines of a file without newlines.

    Raises:
        FileError: a line is longer than `limit` bytes, or the file cannot be read.
    """
    async with aclosing(read_batches(descriptor, limit)) as batches:
        async for batch in batches:
            for line in batch:
                yield line


async def read_batches(descriptor: int, limit: int) -> AsyncGenerator[list[bytes]]:
    """Yield batches of the available lines, each of about 64 KiB or one line at most.

    Raises:
        FileError: as for `read_lines`, after the lines before it.
    """
    waits, buffer, number = can_wait(descriptor), bytearray(), 0
    while True:
        piece = await _piece(descriptor, waits)
        *ends, rest = piece.split(b"\n")
        batch: list[bytes] = []
        problem = None
        for end in ends:
            buffer += end
            problem = _too_long(buffer, limit, number + len(batch) + 1)
            if problem is not None:
                break
            batch.append(bytes(buffer))
            buffer.clear()
        number += len(batch)
        if batch:
            yield batch
        buffer += rest
        problem = problem or _too_long(buffer, limit, number + 1)
        if problem is not None:
            raise problem
        if not piece:
            break
    if buffer:
        yield [bytes(buffer)]


def stdin_descriptor() -> int:
    """Return the descriptor of standard input; FileError if it is closed."""
    try:
        if sys.stdin is not None:
            return sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):
        pass
    raise FileError("cannot read standard input: it is closed; redirect a file or a pipe to it")


def can_wait(descriptor: int) -> bool:
    """Whether an event loop can wait for a file: a pipe, socket or terminal. Other files are always
    ready.
    """
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


class PacedOutput:
    """Prints texts to a file, one after another, without blocking the event loop."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._turn = anyio.Lock(fast_acquire=True)
        try:
            if file is not None and can_wait(file.fileno()):
                self._descriptor = file.fileno()
        except (OSError, ValueError):
            pass  # not a file of the system but memory, which is always ready
        self._poll = select.poll()
        if self._descriptor is not None:
            self._poll.register(self._descriptor, select.POLLOUT)

    async def writable(self) -> None:
        """Wait until the file is writable. A pipe without a reader counts as writable; printing
        then raises.
        """
        if self._descriptor is not None and not self._poll.poll(0):
            await anyio.wait_writable(self._descriptor)

    async def print(self, text: str) -> None:
        """Print the text; a cancelled call may have printed a part.

        Raises:
            OSError: the file cannot be written, such as a pipe without a reader.
        """
        async with self._turn:
            if self._descriptor is None or self._file is None:
                with stdout_errors():
                    print(text, end="", file=self._file, flush=True)
                return
            self._file.flush()
            rest = text.encode(self._file.encoding or "utf-8", "backslashreplace")
            while rest:
                await self.writable()
                # A writable pipe accepts this many bytes without blocking (POSIX).
                rest = rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]


async def _piece(descriptor: int, waits: bool) -> bytes:
    try:
        if waits:
            await anyio.wait_readable(descriptor)
        else:
            await checkpoint()
        return os.read(descriptor, _PIECE)
    except OSError as error:
        raise FileError(f"cannot read standard input: {os_reason(error)}") from error


def _too_long(line: bytearray, limit: int, number: int) -> FileError | None:
    if len(line) <= limit:
        return None
    return FileError(f"cannot read line {number:,}: it is longer than {limit:,} bytes")
