"""Every code is explained once, and found by whatever it may be called."""

from collections.abc import Iterable

from parley._node.cli.exits import Exit
from parley._node.cli.explanations import EXPLANATIONS, explain
from parley._node.dialects.relay.codec import RelayCode
from parley._node.protocol.codes import EVENT_FAILED, RESULT_SENTENCES, CloseCode, ResultCode
from tests.sweep import sweep


def test_every_code_is_explained_once() -> None:
    found = [(e.kind, e.code) for e in EXPLANATIONS]
    kinds: dict[str, Iterable[int]] = {
        "close": CloseCode,
        "result": ResultCode,
        "event": [EVENT_FAILED],
        "relay": RelayCode,
        "exit": Exit,
    }
    assert found == [(kind, code) for kind, codes in kinds.items() for code in codes]


def test_every_explanation_says_something() -> None:
    for e in EXPLANATIONS:
        for text in (e.name, e.meaning, e.raised_by, e.mend):
            assert text == text.strip()
            assert text.isprintable()
            assert text
        assert "|" not in e.meaning + e.raised_by + e.mend  # it stands in a table


def test_results_keep_their_sentences() -> None:
    for e in EXPLANATIONS:
        if e.kind == "result" and e.code in RESULT_SENTENCES:
            assert e.meaning == RESULT_SENTENCES[e.code]


@sweep(
    ("code", "expected"),
    [
        ("17", {("result", 17)}),
        ("deadline-exceeded", {("result", 17)}),
        ("DEADLINE_EXCEEDED", {("result", 17)}),
        ("the-deadline-passed", {("result", 17)}),  # as --json names it
        ("3", {("close", 3), ("result", 3), ("relay", 3), ("exit", 3)}),
        ("500", {("event", 500)}),
        ("the-handler-failed", {("result", 16), ("event", 500)}),
        ("already-connected", {("relay", 2)}),
        ("-2", {("close", -2)}),
        ("not-authorised", {("close", 20), ("result", 20), ("relay", 4)}),
        ("cancelled", {("close", 32), ("result", 18)}),
        ("not-subscribed", {("result", 2)}),
        ("already-subscribed", {("result", 2)}),
        ("not-trusted", {("exit", 4)}),
        ("033", set()),
        ("", set()),
        ("nonsense", set()),
    ],
)
def test_explain(code: str, expected: set[tuple[str, int]]) -> None:
    assert {(e.kind, e.code) for e in explain(code)} == expected
