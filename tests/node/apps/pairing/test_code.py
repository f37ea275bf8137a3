"""Tests of node/apps/pairing/code.py: random codes and misspelt words."""

import pytest

from parley._node.apps.pairing import code
from parley._node.apps.pairing.code import Code, CodeTextError, draw_slot, looks_like_code
from parley._node.trust.words import EVEN, ODD
from tests.sweep import sweep


def test_every_code_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    for first in range(256):
        monkeypatch.setattr(code, "random_bytes", lambda size, n=first: bytes([n, 255 - n]))
        drawn.add(Code.draw(7))
    assert drawn == {Code(7, f"{ODD[n]}-{EVEN[255 - n]}") for n in range(256)}


def test_every_slot_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(256))
    monkeypatch.setattr(code, "random_bytes", lambda size: bytes([next(numbers)]))
    assert sorted(draw_slot() for _ in range(198)) == sorted(2 * list(range(1, 100)))
    with pytest.raises(StopIteration):
        draw_slot()  # otherwise the remaining slots would be more likely


@sweep("dash", "-\u00ad\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d")
def test_a_dash_may_be_typographic(dash: str) -> None:
    text = dash.join(["7", "crossover", "clockwork"])
    assert looks_like_code(text)
    assert str(Code.parse(f" {text.upper()} ")) == "7-crossover-clockwork"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("7-crosover-clockwork", "invalid word 'crosover' .* did you mean crossover "),
        ("7-crossover-clokwork", "did you mean clockwork?"),
        ("7-crossover-xyzzy", "invalid word 'xyzzy' .* check the spelling$"),
        ("7-" + "x" * 100 + "-zulu", f"invalid word '{'x' * 40}'"),
    ],
)
def test_misspelt_word_raises_an_error_before_any_attempt(text: str, hint: str) -> None:
    with pytest.raises(CodeTextError, match=hint):
        Code.parse(text)
    assert looks_like_code(text)


@pytest.mark.parametrize(
    "text", ["inbox", ".", "./7-a-b", "/7-a-b", "7", "7-a", "a-b-c", "7-a-b-c"]
)
def test_a_directory_is_no_code(text: str) -> None:
    assert not looks_like_code(text)
