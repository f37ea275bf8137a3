"""The line editor: keys in, lines and a picture out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from node.cli.chat.editor import LONGEST, LineEditor

CLEAR = "\r\x1b[K"


@pytest.mark.parametrize(
    ("keys", "lines", "left"),
    [
        (b"hello", [], "hello"),
        (b"hello\n", ["hello"], ""),
        (b"a\rb\nc", ["a", "b"], "c"),
        (b"abc\x7f\x08d\n", ["ad"], ""),
        (b"\x7f\x7fx\n", ["x"], ""),
        (b"one two\x17three\n", ["one three"], ""),
        (b"one\x17\x17\n", [""], ""),
        (b"gone\x15kept\n", ["kept"], ""),
        ("né ✓\n".encode(), ["né ✓"], ""),
        ("né\x7f\n".encode(), ["n"], ""),
        (b"\xff\n", ["\ufffd"], ""),
        (b"a\x1b[Db\x1b[3~c\x1bOPd\x1bxe\n", ["abcde"], ""),
        (b"a\x1b[1;5Cb\n", ["ab"], ""),
        (b"a\x00\x07b\n", ["ab"], ""),
        (b"x\x04y", [], "xy"),
    ],
)
def test_keys(keys: bytes, lines: list[str], left: str) -> None:
    whole, single = LineEditor("> "), LineEditor("> ")
    assert whole.feed(keys) == lines
    assert [line for key in keys for line in single.feed(bytes([key]))] == lines
    for editor in (whole, single):
        assert editor.text == left
        assert not editor.closed


def test_the_end_of_the_input() -> None:
    editor = LineEditor("> ")
    assert editor.feed(b"one\n\x04two\n") == ["one"]
    assert editor.closed


def test_a_line_has_an_end() -> None:
    editor = LineEditor("> ")
    assert editor.feed(b"x" * (LONGEST + 5) + b"\n") == ["x" * LONGEST]


def test_what_is_drawn() -> None:
    editor = LineEditor("ann> ")
    editor.feed("日本x".encode())
    assert editor.view(80) == f"{CLEAR}ann> 日本x"
    assert editor.view(9) == f"{CLEAR}ann> 本x"
    assert editor.view(8) == f"{CLEAR}ann> x"
    assert editor.above("bob: hi", 80) == f"{CLEAR}bob: hi\r\n{CLEAR}ann> 日本x"


@given(st.binary(max_size=60), st.integers(8, 40))
def test_what_is_drawn_fits_and_steers_nothing(keys: bytes, columns: int) -> None:
    editor = LineEditor("> ")
    editor.feed(keys)
    shown = editor.view(columns).removeprefix(CLEAR)
    assert shown.isprintable()
    assert cell_len(shown) < columns
