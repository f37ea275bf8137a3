"""A terminal of a test's own, at the standard files of this process."""

import os
import pty
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


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


@contextmanager
def at_terminal() -> Iterator[Terminal]:
    """Standard input and standard error are a terminal meanwhile."""
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
