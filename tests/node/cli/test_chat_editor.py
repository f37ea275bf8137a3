"""The line editor: keys in, lines out. `test_chat` checks the screen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from parley._node.apps.chat.messages import TEXT_LENGTH
from parley._node.cli.chat_editor import AHEAD, REMEMBERED, LineEditor, RecentLines
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

LEFT, RIGHT, DELETE, END = "\x1b[D", "\x1b[C", "\x1b[3~", "\x04"


@pytest.fixture
def anyio_backend() -> str:
    """prompt_toolkit runs on asyncio alone."""
    return "asyncio"


@asynccontextmanager
async def editing() -> AsyncIterator[tuple[LineEditor, PipeInput]]:
    with create_pipe_input() as keys:
        editor = LineEditor(lambda: "> ", keys, DummyOutput())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.run)
            yield editor, keys


@sweep(
    ("keys", "lines"),
    [
        ("hello\r", ["hello"]),
        ("a\rb\rc", ["a", "b"]),
        ("abc\x7f\x08d\r", ["ad"]),
        ("one two\x17three\r", ["one three"]),
        ("gone\x15kept\r", ["kept"]),
        ("né ✓\r", ["né ✓"]),
        (f"ac{LEFT}b{RIGHT}d\r", ["abcd"]),
        (f"xb\x01{DELETE}a\x05c\r", ["abc"]),
        ("\x1b[200~a\nb\r\nc\x1b[201~d\r", ["a b cd"]),
        ("\x1b[200~/quit\nx\x1b[201~", []),
        ("\x1b[200~a\x07\x1b[2Jb\x1b[201~\r", ["a  [2Jb"]),
        ("x\x04y\r", ["xy"]),
    ],
)
async def test_keys(keys: str, lines: list[str]) -> None:
    with anyio.fail_after(20):
        async with editing() as (editor, pipe):
            pipe.send_text(keys + "\x01\x0b" + END)  # clear the rest of the line
            assert [line async for line in editor.entered()] == lines


async def test_a_line_has_an_end() -> None:
    with anyio.fail_after(20):
        async with editing() as (editor, pipe):
            pipe.send_text(f"\x1b[200~{'x' * (TEXT_LENGTH + 5)}\x1b[201~\r{END}")
            assert [line async for line in editor.entered()] == ["x" * TEXT_LENGTH]


async def test_what_waits_has_a_limit_and_loses_nothing() -> None:
    with anyio.fail_after(20):
        async with editing() as (editor, pipe):
            pipe.send_text("".join(f"{number}\r" for number in range(AHEAD)) + "last\r\r")
            lines = editor.entered()
            await anyio.wait_all_tasks_blocked()
            seen = [await anext(lines) for _ in range(AHEAD)]
            pipe.send_text("\r" + END)
            seen += [line async for line in lines]
            assert seen == [*map(str, range(AHEAD)), "last"]


async def test_lines_that_come_back_have_a_limit() -> None:
    recent = RecentLines()
    for number in range(REMEMBERED + 5):
        recent.append_string(str(number))
    assert recent.get_strings() == [str(number) for number in range(5, REMEMBERED + 5)]
    assert [line async for line in recent.load()] == recent.get_strings()[::-1]


async def test_cancelled_while_a_line_is_begun() -> None:
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with editing() as (editor, pipe):
            pipe.send_text("half")
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.sleep_forever()
    assert [line async for line in editor.entered()] == []
