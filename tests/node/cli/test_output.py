"""Output of commands: values for people and as JSON, and lost readers."""

import io
import json
import logging
import re
import sys
from typing import Any

import pytest
from rich.markup import escape
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from parley._node.cli.exit_codes import Exit
from parley._node.cli.logging_setup import set_up_logging
from parley._node.cli.output import (
    CommandFailure,
    Output,
    decode_or_hex,
    format_value,
    to_json_value,
)
from parley._node.cli.terminal import show_stages, table_of
from tests.sweep import sweep

FAILURE = CommandFailure(
    Exit.ANSWERED, 64, "refused", "refused (code 64)", "result", {"why": b"\xff"}
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@sweep(
    ("value", "shown"),
    [
        ("text", "text"),
        ("", ""),
        ("two\nlines", "two\nlines"),
        (b"caf\xc3\xa9", "café"),
        (b"", ""),
        (b"\xff\x00", "ff00"),
        (None, "null"),
        (True, "true"),
        (2**64 - 1, "18446744073709551615"),
        (-0.0, "-0.0"),
        (float("nan"), '"nan"'),
        (float("-inf"), '"-inf"'),
        ({"é": [b"\xff", b"ok", {1: None}]}, '{"é": ["ff", "ok", {"1": null}]}'),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_an_answer_for_people(value: object, shown: str) -> None:
    assert format_value(value) == shown


def test_plain_values_are_strict_json() -> None:
    value = {"deep": [{"nan": float("nan"), "inf": [float("inf")], "bytes": bytearray(b"\x80")}]}
    text = json.dumps(to_json_value(value), allow_nan=False)
    assert json.loads(text) == {"deep": [{"nan": "nan", "inf": ["inf"], "bytes": "80"}]}


def test_bytes_are_hex_unless_they_are_utf_8() -> None:
    assert decode_or_hex(b"\xed\xa0\x80") == "eda080"  # a surrogate, which UTF-8 does not have
    assert decode_or_hex("日本".encode()) == "日本"


def test_json_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.print("for people")
    out.console.print("for people")
    out.event("pong", seconds=float("inf"))
    out.done(code=0, data=b"\xff")
    out.fail(FAILURE)
    printed, errors = capsys.readouterr()
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"event": "pong", "seconds": "inf"},
        {"event": "done", "code": 0, "data": "ff"},
        {
            "event": "error",
            "code": 64,
            "kind": "result",
            "name": "refused",
            "exit": 5,
            "text": "refused (code 64)",
            "data": {"why": "ff"},
        },
    ]
    assert errors == ""


def test_people_read_words(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=False)
    out.event("pong", seconds=1)
    out.print("for people")
    out.done(code=0)
    out.fail(FAILURE)
    printed, errors = capsys.readouterr()
    assert printed == "for people\n"
    assert errors == "parley: refused (code 64)\n"


def test_a_terminal_is_not_steered_by_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "two\nlines\tand \x1b]0;owned\x07\x9b2J\r"
    for stream, shown in (
        (Terminal(), "two\nlines\tand \\x1b]0;owned\\x07\\x9b2J\\r\n"),
        (io.StringIO(), text + "\n"),  # a file gets the unchanged response
    ):
        monkeypatch.setattr(sys, "stdout", stream)
        Output(as_json=False).print(text)
        assert stream.getvalue() == shown


def test_a_line_of_the_log_does_not_tear_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    root, terminal = logging.getLogger(), Terminal()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, terminal)
    set_up_logging("info")
    with Output(as_json=False).bar(TextColumn("{task.description}")) as bar:
        bar.add_task("moving")
        bar.refresh()
        root.info("a line")
    before, line, after = terminal.getvalue().partition(" INFO    root: a line\n")
    assert line
    # The bar is cleared, the log line is printed, and the bar is drawn again.
    assert re.search(r"moving.*\x1b\[2K[\d: ,-]+$", before, re.S)
    assert "moving" in after

    # A log that goes elsewhere stays there, and with JSON there is no bar.
    for as_json, stdout in ((False, terminal), (True, io.StringIO())):
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", log := io.StringIO())
        with Output(as_json).bar(TextColumn("{task.description}")):
            root.info("elsewhere")
        assert log.getvalue().endswith(" INFO    root: elsewhere\n")


def test_a_message_is_one_line_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    set_up_logging("info")
    logging.getLogger("parley.peer").info("ended: %s", "bye\n2026 ERROR forged")
    logging.getLogger("parley.peer").debug("not shown")
    logging.getLogger("coredis").error("nor this")  # the bus reports it
    assert isinstance(sys.stderr, io.StringIO)
    line = sys.stderr.getvalue()
    assert line.endswith("INFO    parley.peer: ended: bye\\n2026 ERROR forged\n")
    assert line.count("\n") == 1


def listing() -> Table:
    table = table_of("groups", "event", "read up to")
    table.add_row("[bold]shop[/].ordered" + 200 * "!", "two\nlines")
    table.add_row(r"\[x]", "a\tb\x1b[2J")
    return table


def test_a_table_to_a_pipe_is_tab_separated_and_never_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    bare = Table("", "what", show_header=False)
    bare.add_row("a", "b")
    Output(False).table(listing(), bare)
    assert capsys.readouterr().out.splitlines() == [
        "# groups (times are UTC)",
        "event\tread up to",
        "shop.ordered" + 200 * "!" + "\ttwo lines",
        "[x]\ta b\\x1b[2J",
        "a\tb",
    ]
    Output(True).table(listing())
    assert capsys.readouterr() == ("", "")


def test_a_table_at_a_terminal_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    Output(False).table(listing())
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert "──────" in shown
    assert "\t" not in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 40


HOSTILE = "a\x1b]0;owned\x07\x9b2J\x1b[31m\u202eb"
ESCAPED = r"a\x1b]0;owned\x07\x9b2J\x1b[31m\u202eb"


def test_a_terminal_is_not_steered_by_what_rich_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    out = Output(False)
    table = table_of(escape(HOSTILE), escape(HOSTILE))
    table.add_row(escape(HOSTILE))
    out.table(table)
    out.console.print(escape(HOSTILE))
    out.console.print(HOSTILE, markup=False)
    out.console.print(Text(HOSTILE))
    with out.bar(TextColumn("{task.description}", markup=False), kept=True) as bar:
        bar.add_task(HOSTILE)
    shown = terminal.getvalue()
    assert shown.count(ESCAPED) >= 5  # rich itself drops some, or crops a bar
    assert not re.search(r"\x1b[^\[]|\x1b\[31m|\x9b|\x07|\u202e", shown)


def test_a_failure_does_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    failed = CommandFailure(Exit.FAILED, 1, "failed", HOSTILE, shown=f"two\n{HOSTILE}")
    Output(False).fail(failed)
    assert capsys.readouterr().err == f"parley: two\n{ESCAPED}\n"


def test_stages_are_shown_at_a_terminal_alone_and_logs_stand_above(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for as_json in (False, True):
        with show_stages(Output(as_json)) as stage:
            stage("reading")
    assert capsys.readouterr() == ("", "")
    terminal, root = Terminal(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, terminal)
    monkeypatch.setenv("TERM", "xterm")
    set_up_logging("warning")
    with show_stages(Output(False)) as stage:
        stage("reading")
        logging.getLogger("parley").warning("a line of the log")
        stage("writing")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    lines = [line.strip() for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert "parley: a line of the log" in next(line for line in lines if "line of" in line)
    assert any(re.match(r"· reading\s+0:00:00", line) for line in lines)
    assert any(re.match(r"\S writing\s+0:00:00", line) for line in lines)


@pytest.mark.parametrize("kind", ["close", "result", "exit"])
def test_a_code_has_its_kind_beside_it(capsys: pytest.CaptureFixture[str], kind: Any) -> None:
    Output(True).fail(CommandFailure(Exit.FAILED, 1, "name", "text", kind))
    assert json.loads(capsys.readouterr().out)["kind"] == kind
