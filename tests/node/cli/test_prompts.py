"""Questions at a terminal: what counts as yes, who can be asked, and that waiting can end."""

import sys

import anyio
import pytest

from parley._node.cli.output import Output
from parley._node.cli.prompts import can_prompt, prompt_yes_no
from tests.node.cli.terminals import at_terminal


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("yes\n", True),
        (" Y \n", True),
        ("no\n", False),
        ("\n", False),
        ("maybe\nyes\n", True),
        ("what\nwhy\nwho\n", False),  # and no fourth question
        ("\x04", False),  # the end of the input
    ],
)
async def test_an_answer(anyio_backend: str, typed: str, answer: bool) -> None:
    with at_terminal() as terminal:
        assert can_prompt(Output(as_json=False))
        async with terminal.answered(typed):
            assert await prompt_yes_no("Somebody new.\nIs it Bob?") is answer
        shown = terminal.read()
    assert "Somebody new.\nIs it Bob? [yes/no] " in shown
    assert shown.count("[yes/no]") == min(typed.count("\n") or 1, 3)


async def test_the_question_cannot_steer_the_terminal(anyio_backend: str) -> None:
    with at_terminal() as terminal:
        async with terminal.answered("no\n"):
            await prompt_yes_no("one\n\x1b[2Jtwo?")
        assert "\x1b" not in terminal.read()


async def test_what_was_typed_before_is_no_answer(anyio_backend: str) -> None:
    with at_terminal() as terminal:
        terminal.type("yes\nyes\nyes, and half of a")
        async with terminal.answered("no\n"):
            assert not await prompt_yes_no("Is it Bob?")
        assert terminal.read().count("[yes/no]") == 1


async def test_nobody_has_to_answer(anyio_backend: str) -> None:
    with at_terminal():
        with anyio.move_on_after(0.01) as waiting:
            await prompt_yes_no("Is it Bob?")
        assert waiting.cancelled_caught


def test_who_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_prompt(Output(as_json=False))  # pytest has no terminal
    with at_terminal():
        assert not can_prompt(Output(as_json=True))
        monkeypatch.setattr(sys, "stdin", None)
        assert not can_prompt(Output(as_json=False))
