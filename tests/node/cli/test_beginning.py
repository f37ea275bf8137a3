"""How commands begin: plain values as they are, all others by typer; the collector; SIGINT."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from parley._node.cli.beginning import PlainCommand, begin

Number = Annotated[int | None, typer.Option(min=1, max=9)]
Part = Annotated[float, typer.Option(min=0.0)]
Words = Annotated[list[str] | None, typer.Option("--word")]


def shouted(text: str) -> str:
    if not text:
        raise ValueError("nothing to shout")
    return text.upper()


def run(*arguments: str, cls: Any = PlainCommand) -> dict[str, Any]:
    """What a command with options of all kinds is given."""
    taken: dict[str, Any] = {}
    app = typer.Typer(add_completion=False)

    @app.command(cls=cls)
    def command(
        text: str,
        number: Number = None,
        part: Part = 0.5,
        word: Words = None,
        path: Path | None = None,
        loud: Annotated[str, typer.Option(parser=shouted)] = "hey",
        flag: bool = False,
        either: Annotated[bool | None, typer.Option("--yes/--no")] = None,
    ) -> None:
        taken.update(locals())

    app(list(arguments), standalone_mode=False)
    del taken["taken"]
    return taken


@pytest.mark.parametrize(
    "given",
    [
        "x",
        "x --number 3 --part 0.25",
        "x --number 09 --part 7",
        "x --part 1e-3",
        "x --word a --word b --path a/b",
        "x --loud you --flag --no",
        "x --part inf",
    ],
)
def test_what_is_taken_is_what_typer_takes(given: str) -> None:
    ours, its = run(*given.split()), run(*given.split(), cls=None)
    assert ours == its
    assert {name: type(value) for name, value in ours.items()} == {
        name: type(value) for name, value in its.items()
    }


@pytest.mark.parametrize(
    "given",
    [
        "x --number 0",
        "x --number 10",
        "x --number 1.5",
        "x --part -1",
        "x --part no",
        "x --number ''",
    ],
)
def test_what_is_refused_is_refused_in_typer_s_words(given: str) -> None:
    said = []
    for cls in (PlainCommand, None):
        with pytest.raises(typer.BadParameter) as refused:
            run(*given.split(), cls=cls)
        said.append(refused.value.format_message())
    assert said[0] == said[1]


def test_plain_values_need_no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(_: object) -> None:
        raise AssertionError("typer was asked")

    monkeypatch.setattr("parley._node.cli.beginning.build_runtime_param", build)
    assert run("x", "--number", "3", "--part", "2", "--word", "a", "--path", "p")["number"] == 3


@pytest.fixture
def starting() -> Iterator[None]:
    """As `parley.__main__` has it before a command begins."""
    before = signal.getsignal(signal.SIGINT)
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
    signal.signal(signal.SIGINT, before)


def test_a_command_that_begins_is_interrupted_as_usual(starting: None) -> None:
    signal.signal(signal.SIGINT, lambda *_: None)
    begin()
    assert gc.isenabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_sigint_is_ignored_it_stays_so(starting: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
