"""How a federation grows, in small."""

import json
from pathlib import Path

from benchmarks.federation import PLOTS, federation_table, grow, line, plot_federation


def test_a_row_its_text_its_cells_and_its_plots(tmp_path: Path) -> None:
    rows = list(grow((4, 6), links=2))
    assert json.loads(json.dumps(rows)) == rows
    assert [(row["servers"], row["links"]) for row in rows] == [(4, 4), (6, 6)]
    assert rows[0]["sent"] < rows[1]["sent"]
    assert line(rows[0]).startswith("    4 servers     4 links  settled ")
    *_, last = federation_table(rows).splitlines()
    assert last.startswith("| 6 | ")
    drawn = plot_federation(rows, tmp_path)
    assert [path.stem for path in drawn] == list(PLOTS)
    first = [path.read_bytes() for path in drawn]
    assert all(b"<svg" in data for data in first)
    plot_federation(rows, tmp_path)
    assert [path.read_bytes() for path in drawn] == first
