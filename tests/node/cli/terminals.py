"""A terminal of a test's own, at the standard files of this process."""

import os
import pty
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread

import anyio
import pytest

TIMEOUT = 25.0


class Terminal:
    """The other side of the terminal: what a person sees there, and types."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = ""

    def type(self, text: str) -> None:
        """Type it; the terminal shows it, as a terminal does."""
        os.write(self._descriptor, text.encode())

    def read(self) -> str:
        """All that was shown up to now, with plain ends of lines."""
        while select.select([self._descriptor], [], [], 0)[0]:
            self.seen += os.read(self._descriptor, 65_536).decode()
        return self.seen.replace("\r\n", "\n")

    def wait_for(self, text: str, count: int) -> None:
        """Wait until `text` was shown so many times; AssertionError after a timeout."""
        while self.read().count(text) < count:
            found, _, _ = select.select([self._descriptor], [], [], TIMEOUT)
            assert found, f"{text!r} was not shown: {self.seen!r}"

    @asynccontextmanager
    async def answered(self, typed: str) -> AsyncIterator[None]:
        """Type one of these lines whenever a question is asked while the block runs."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer, typed)
            yield
            tasks.cancel_scope.cancel()

    @contextmanager
    def answering(self, typed: str) -> Iterator[None]:
        """Type a line in a thread once a question is asked, while the block runs."""

        def answer() -> None:
            self.wait_for("[yes/no] ", 1)
            self.type(typed)

        thread = Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    async def _answer(self, typed: str) -> None:
        for number, line in enumerate(typed.splitlines(keepends=True), 1):
            while self.read().count("[yes/no] ") < number:
                await anyio.wait_readable(self._descriptor)
            self.type(line)


@contextmanager
def at_terminal() -> Iterator[Terminal]:
    """Let standard input and error be a terminal while the block runs."""
    ours, theirs = pty.openpty()
    try:
        with (
            open(theirs) as stdin,
            open(theirs, "w", closefd=False) as stderr,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(sys, "stderr", stderr)
            yield Terminal(ours)
    finally:
        os.close(ours)
