"""Where a chat is read and typed: a terminal, or files.

One rule: what others say is one line each, shown without what would steer a terminal,
and never in the middle of the line being typed.
"""

import os
import shutil
import sys
import termios
import tty
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Final

import anyio

from node.cli.chat.editor import LONGEST, LineEditor
from node.cli.lines import Pace, read_lines
from node.cli.output import Output
from node.logs import one_line

# Bytes of a line that is not typed but comes from a file.
_LONGEST_LINE: Final = 4 * LONGEST
_PIECE: Final = 4_096


class Screen:
    """Lines out and lines in; `descriptor` is the input's number."""

    def __init__(self, out: Output, descriptor: int) -> None:
        self._out = out
        self._descriptor = descriptor
        self._editor: LineEditor | None = None
        self._pace = Pace(sys.stdout)

    async def room(self) -> None:
        """Wait until whoever reads takes more."""
        await self._pace.room()

    def say(self, text: str) -> None:
        """Show a line."""
        line = one_line(text)
        if self._editor is None:
            self._out.say(line)
        else:
            self._draw(self._editor.above(line, _columns()))

    async def lines(self, prompt: str) -> AsyncGenerator[str]:
        """What is typed, line by line, until the end of the input.

        Raises:
            FileError: a line of a file is longer than 16,384 bytes.
        """
        if self._out.as_json or not (os.isatty(self._descriptor) and sys.stdout.isatty()):
            async with aclosing(read_lines(self._descriptor, _LONGEST_LINE)) as lines:
                async for raw in lines:
                    yield raw.decode(errors="replace")
            return
        with self._keys(prompt) as editor:
            while not editor.closed:
                await anyio.wait_readable(self._descriptor)
                try:
                    keys = os.read(self._descriptor, _PIECE)
                except OSError:
                    keys = b""
                if not keys:
                    break  # the terminal is gone
                for line in editor.feed(keys):
                    self._draw(editor.view(_columns()))
                    yield line
                self._draw(editor.view(_columns()))

    @contextmanager
    def _keys(self, prompt: str) -> Iterator[LineEditor]:
        """Have the terminal hand over each key; its own ways come back at the end."""
        before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)  # Ctrl-C stays a signal
        self._editor = editor = LineEditor(prompt)
        try:
            self._draw(editor.view(_columns()))
            yield editor
        finally:
            self._editor = None
            self._draw("\r\x1b[K")
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    def _draw(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _columns() -> int:
    return shutil.get_terminal_size().columns
