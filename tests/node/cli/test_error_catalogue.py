"""`parley errors`: each code is explained once, and found by its number and its names."""

from collections.abc import Iterable

import pytest

from parley._node.cli.error_catalogue import EXPLANATIONS, explain
from parley._node.cli.exit_codes import Exit
from parley._node.dialects.relay.codec import RelayCode
from parley._node.protocol.codes import EVENT_FAILED, CloseCode, ResultCode
from tests.node.cli.conftest import Parley
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


def test_explanations_are_complete() -> None:
    for e in EXPLANATIONS:
        for text in (e.name, e.meaning, e.raised_by, e.mend):
            assert text == text.strip()
            assert text.isprintable()
            assert text
        assert "|" not in e.meaning + e.raised_by + e.mend  # a cell of a Markdown table


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


def test_one_code(parley: Parley) -> None:
    done = parley("errors", "17")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "result code 17  deadline-exceeded"
    assert lines[1] == "  means       the deadline passed"
    assert lines[2] == "  comes from  either side"
    assert lines[3].startswith("  what to do  allow more time")
    assert parley("errors", "deadline-exceeded").out == done.out


def test_a_code_of_several_kinds(parley: Parley) -> None:
    done = parley("errors", "3")
    heads = [line for line in done.out.splitlines() if not line.startswith(" ")]
    assert heads == [
        "close code 3  bad-record",
        "result code 3  rejected",
        "relay code 3  invalid-format",
        "exit code 3  unreachable",
    ]


def test_a_code_below_zero_is_no_option(parley: Parley) -> None:
    assert "connection-lost" in parley("errors", "-1").out


def test_all_of_them(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    done = parley("errors")
    assert (done.code, done.err) == (0, "")
    for explanation in EXPLANATIONS:
        for text in (explanation.name, explanation.meaning, explanation.mend):
            assert text in done.out, text


def test_on_a_narrow_terminal_no_name_is_cut_off(
    parley: Parley, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = parley("errors")
    assert "…" not in done.out
    for explanation in EXPLANATIONS:
        for word in explanation.name.split():
            assert word in done.out


def test_as_json(parley: Parley) -> None:
    done = parley("errors", "no-handler", "--json")
    assert done.lines[0] == {
        "event": "code",
        "kind": "close",
        "code": 34,
        "name": "no-handler",
        "meaning": "the node has no handler for streams with this label",
        "raised_by": "the receiver of the stream",
        "what_to_do": (
            "check the spelling of the label, and list what the node offers with parley topics"
        ),
    }
    assert done.last == {"event": "done", "count": 1}
    assert parley("errors", "--json").last["count"] == len(EXPLANATIONS)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("99999999999", "unknown code '99999999999'; list all codes with: parley errors"),
        ("nonsense", "unknown code 'nonsense'; list all codes with: parley errors"),
        ("-9", "unknown code '-9'; list all codes with: parley errors"),
        ("70", "cannot explain the code 70: the application that uses it defines its meaning"),
    ],
)
def test_an_unknown_code(parley: Parley, code: str, sentence: str) -> None:
    assert parley("errors", code) == (2, "", f"parley: {sentence}\n")
    assert parley("errors", code, "--json").last["text"] == sentence
