"""The Grafana dashboard and the guide use only existing metrics, and the dashboard uses all of
them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parley._node.metrics.catalogue import CATALOGUE, Measure
from tests.sweep import sweep

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "parley.json").read_text())
GUIDE = (ROOT / "docs" / "guides" / "metrics.md").read_text()
MEASURES = {measure.full_name: measure for measure in CATALOGUE.values()}


def asked_for(text: str) -> Iterator[tuple[str, Measure]]:
    """Return the series that a text names, and their measures."""
    for series in re.findall(r"\bparley_[a-z_]+", text):
        name = re.sub(r"_(bucket|sum|count)$", "", series)
        yield series, MEASURES[name]  # a KeyError: the metric doesn't exist


@sweep("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_each_panel_uses_existing_metrics(panel: dict[str, Any]) -> None:
    for target in panel.get("targets", ()):
        found = list(asked_for(target["expr"]))
        assert found
        for series, measure in found:
            assert (measure.kind == "histogram") is series.endswith("_bucket")
            assert ("rate(" in target["expr"] or "increase(" in target["expr"]) or (
                measure.kind == "gauge"
            )
        labels = {label for _, measure in found for label in measure.labels} | {"instance"}
        by = re.findall(r"by \(([a-z, ]+)\)", target["expr"])
        grouped = {label for group in by for label in group.split(", ")} - {"le"}
        assert grouped <= labels
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= grouped | {"instance"}


def test_the_dashboard_shows_all_there_is_and_no_panel_covers_another() -> None:
    shown = {measure.full_name for _, measure in asked_for(json.dumps(DASHBOARD["panels"]))}
    assert shown == set(MEASURES)
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        taken = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert max(columns) < 24
        assert not cells & taken
        cells |= taken
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_guide_names_all_there_is() -> None:
    assert {measure.full_name for _, measure in asked_for(GUIDE)} == set(MEASURES)
    for measure in MEASURES.values():
        labels = ", ".join(f"`{label}`" for label in measure.labels)
        assert f"| `{measure.full_name}` | {measure.kind} | {labels} | {measure.help} |" in GUIDE
