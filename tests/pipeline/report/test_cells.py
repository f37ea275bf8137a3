"""Peers' names in cells have no invisible characters and a bounded length."""

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._pipeline.report.cells import NAME_LIMIT, Nodes, visible


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("prices.eur", "prices.eur"),
        ("цены שלום 価格", "цены שלום 価格"),
        ("a\u202egnp.exe", "a\\u{202e}gnp.exe"),
        ("line\nbreak\ttab\x00", "line\\u{a}break\\u{9}tab\\u{0}"),
        ("zero\u200bwidth\ufeff", "zero\\u{200b}width\\u{feff}"),
        ("no\u00a0break", "no\\u{a0}break"),
        ("e\u0301", "e\u0301"),
        ("z\u0301\u0302\u0303\u0304", "z\u0301\u0302\\u{303}\\u{304}"),
        ("x" * 10_000, "x" * NAME_LIMIT + "… (10,000 characters)"),
    ],
)
def test_what_is_unseen_becomes_visible(name: str, shown: str) -> None:
    assert visible(name) == shown


@given(st.text(max_size=200))
def test_nothing_unseen_is_left(name: str) -> None:
    shown = visible(name)
    assert not {category(one) for one in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert len(shown) <= NAME_LIMIT * len("\\u{10ffff}") + len("… (200 characters)")


def test_short_node_ids_tell_nodes_apart() -> None:
    one, other, third = "a" * 52, "a" * 20 + "b" * 32, "c" * 52
    nodes = Nodes([one, other, third, "short"])
    assert nodes.short(third) == "cccccccc…"
    assert nodes.short(one) == "a" * 21 + "…"
    assert nodes.short(other) == "a" * 20 + "b…"
    assert nodes.short("short") == "short"
    assert nodes.short("never named") == "never named"
