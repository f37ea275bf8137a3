"""The page of figures: made from what is stored, and up to date."""

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import federation, growth, page, store
from benchmarks.peers.cases import PEERS, Peer
from benchmarks.plots import plot_growth
from benchmarks.tables import cases_table, number, table


def test_the_page_shows_what_is_stored() -> None:
    text = page.PAGE.read_text()
    assert page.render(text) == text


def test_there_is_something_stored() -> None:
    for name in (
        *page.LOOPS.values(),
        "cases-compiled",
        "peers",
        "growth",
        "federation",
        "hop",
        "isolation",
        "tuning",
        "profile",
        "bus",
        "bus-always",
        "bus-stored",
    ):
        assert store.load(name), name
        assert store.machine_of(name)["cpu"]


def test_every_sweep_has_its_plot() -> None:
    plots = {*growth.PLOTS, *federation.PLOTS}
    assert {path.stem for path in store.DIRECTORY.glob("*.svg")} == plots
    assert all(f"performance/{name}.svg" in page.PAGE.read_text() for name in plots)


def test_without_figures_the_page_says_so(tmp_path: Path) -> None:
    text = page.render("<!-- measured: cases -->\nold\n<!-- end -->\nkept", tmp_path)
    assert text == "<!-- measured: cases -->\n\nNothing was measured yet.\n\n<!-- end -->\nkept"


@pytest.mark.parametrize("names", [[], ["peers"]])
def test_figures_of_peers_are_not_lost_where_one_is_absent(
    names: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PEERS, "zenoh", Peer("zenoh", "Absent", "no-package-of-this-name"))
    for name in page.MEASURES:
        monkeypatch.setitem(page.MEASURES, name, lambda _: pytest.fail("it measured"))
    monkeypatch.setattr(sys, "argv", ["page", "--measure", *names])
    with pytest.raises(SystemExit) as ended:
        page.main()
    assert ended.value.code == 2
    assert "no-package-of-this-name is not installed" in capsys.readouterr().err


def test_an_unknown_mark_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        page.render("<!-- measured: weather -->\n<!-- end -->", tmp_path)


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"case": "a", "value": 1.5}, {"case": "b", "value": 2}]
    store.save("some", rows, tmp_path)
    assert store.load("some", tmp_path) == rows


def test_the_same_rows_give_the_same_plot(tmp_path: Path) -> None:
    rows = [
        {
            "growth": "call-size",
            "title": "t",
            "unit": "bytes",
            "at": at,
            "side": side,
            "cpu_us": at * 2.0,
        }
        for at in (16, 128)
        for side in ("ours", "baseline")
    ]
    (path,) = plot_growth(rows, tmp_path)
    first = path.read_bytes()
    assert b"<svg" in first
    plot_growth(rows, tmp_path)
    assert path.read_bytes() == first


def test_what_was_lost_stands_beside_the_figure() -> None:
    side = {"value": 1000.0, "lost": 0.0, "all": [1000.0]}
    row = {
        "case": "notes-1",
        "unit": "notes/s",
        "less_is_better": False,
        "ours": {**side, "lost": 0.015},
        "baseline": side,
        "ratio": [1.0, 1.0, 1.0],
        "cpu_ratio": [1.0, 1.0, 1.0],
    }
    *_, line = cases_table([row]).splitlines()
    assert line.startswith("| `notes-1`, notes/s | 1,000 (1.50% lost) | 1,000 | 1.00 | ")


def test_tables() -> None:
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    assert [number(value) for value in (1.26, 99.95, 1234.6)] == ["1.3", "100.0", "1,235"]
