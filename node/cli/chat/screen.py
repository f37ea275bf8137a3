"""Where a chat is read and typed: a terminal, or files.

What others say is one line each, shown without what would steer a terminal, and never in the
middle of the line being typed.
"""

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from parley._node.apps.chat.messages import TEXT_LENGTH
from parley._node.cli.lines import Pace, read_lines
from parley._node.cli.output import Output
from parley._node.logs import one_line

if TYPE_CHECKING:
    from parley._node.cli.chat.editor import LineEditor

_LONGEST_LINE: Final = 4 * TEXT_LENGTH  # bytes of a line from a file
_DUMB: Final = ("", "dumb", "unknown")  # terminals on which no line can be edited


class Screen:
    """Lines out and lines in; `descriptor` is the input's number."""

    def __init__(self, out: Output, descriptor: int) -> None:
        self._out = out
        self._descriptor = descriptor
        self._editor: LineEditor | None = None
        self._pace = Pace(sys.stdout)

    @property
    def edits_lines(self) -> bool:
        """Whether a person types at a terminal."""
        return edits_lines(self._out, self._descriptor)

    async def room(self) -> None:
        """Wait until the output takes more."""
        await self._pace.room()

    def say(self, text: str) -> None:
        """Show a line, above the one that is being typed."""
        if self._editor is not None:
            self._editor.make_way()
        self._out.say(one_line(text))

    @asynccontextmanager
    async def lines(self, prompt: Callable[[], str]) -> AsyncIterator[AsyncGenerator[str]]:
        """What is typed, line by line, until the end of the input.

        Raises:
            FileError: a line of a file is longer than 16,384 bytes.
        """
        if not self.edits_lines:
            async with aclosing(self._plain()) as lines:
                yield lines
            return
        # Only here: prompt_toolkit takes as long to import as the rest of a command.
        from parley._node.cli.chat.editor import LineEditor

        self._editor = LineEditor(prompt)
        try:
            async with (
                anyio.create_task_group() as tasks,
                aclosing(self._editor.entered()) as lines,
            ):
                tasks.start_soon(self._editor.run)
                yield lines
                tasks.cancel_scope.cancel()
        finally:
            self._editor = None

    async def _plain(self) -> AsyncGenerator[str]:
        async with aclosing(read_lines(self._descriptor, _LONGEST_LINE)) as lines:
            async for raw in lines:
                yield raw.decode(errors="replace")


def edits_lines(out: Output, descriptor: int) -> bool:
    """Whether a person types at a terminal on which a line can be edited."""
    at_terminal = os.isatty(descriptor) and sys.stdout.isatty()
    return at_terminal and not out.as_json and os.environ.get("TERM", "") not in _DUMB
