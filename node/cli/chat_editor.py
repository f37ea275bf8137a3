"""The input line of a chat at a terminal, edited with prompt_toolkit.

One prompt_toolkit application runs during the chat, so that messages are printed above the
unfinished line. It requires asyncio.
"""

import io
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from typing import Final

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.history import History
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output

from parley._node.apps.chat.messages import TEXT_LENGTH

REMEMBERED: Final = 100  # previous lines that the cursor keys can recall
AHEAD: Final = 100  # lines that wait to be sent; when full, Enter does nothing


class LineEditor:
    """Edits lines behind `prompt`: `run` edits, `entered` yields the lines."""

    def __init__(
        self, prompt: Callable[[], str], input: Input | None = None, output: Output | None = None
    ) -> None:
        self._typed, self._entered = anyio.create_memory_object_stream[str](AHEAD)
        keys = KeyBindings()
        keys.add("c-c")(_interrupt)
        session = PromptSession[str](
            prompt,
            history=RecentLines(),
            key_bindings=keys,
            enable_suspend=True,
            erase_when_done=True,
            reserve_space_for_menu=0,
            input=input or _keyboard(),
            output=output or _terminal(),
        )
        self._app = session.app
        session.default_buffer.accept_handler = self._enter
        session.default_buffer.on_text_changed += self._tidy

    async def run(self) -> None:
        """Edit until the end of the input. On cancellation the terminal is restored."""
        with self._typed, suppress(EOFError):
            await self._app.run_async(handle_sigint=False, set_exception_handler=False)

    async def entered(self) -> AsyncGenerator[str]:
        with self._entered:
            async for line in self._entered:
                yield line

    def clear_line(self) -> None:
        """Erase the line from the screen; it is redrawn in the next iteration of the loop."""
        if self._app.is_running:
            self._app.renderer.erase()
            self._app.invalidate()

    def _enter(self, line: Buffer) -> bool:
        try:
            self._typed.send_nowait(line.text)
        except anyio.WouldBlock:
            self._app.output.bell()
            return True  # the text stays in the line
        return False

    def _tidy(self, line: Buffer) -> None:
        """Keep pasted text on one line, without control characters."""
        tidy = "".join(c if c.isprintable() else " " for c in line.text[:TEXT_LENGTH])
        if tidy != line.text:
            line.text = tidy


class RecentLines(History):
    """The last lines of this chat, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=REMEMBERED)

    def append_string(self, string: str) -> None:
        self._lines.appendleft(string)

    def get_strings(self) -> list[str]:
        return list(reversed(self._lines))

    async def load(self) -> AsyncGenerator[str, None]:
        for line in tuple(self._lines):
            yield line

    def load_history_strings(self) -> Iterable[str]:
        return tuple(self._lines)

    def store_string(self, string: str) -> None:
        """Do nothing: lines are never saved to disk."""


def _interrupt(_: KeyPressEvent) -> None:
    signal.raise_signal(signal.SIGINT)  # Ctrl-C ends a chat like any other command


def _keyboard() -> Input:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8")  # the same encoding as for files, in every locale
    return create_input(sys.stdin)


def _terminal() -> Output:
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = (
        False  # a one-line prompt needs no cursor position, and some terminals don't report it
    )
    return output
