"""The circle of the graph."""

from math import hypot, isclose

from parley._pipeline.report.plots import circle


def test_nodes_stand_on_a_circle_beside_whom_they_talk_with() -> None:
    edges = [("a", "b", 9), ("c", "d", 8), ("b", "c", 1), ("d", "e", 2)]
    places = circle(edges)
    assert list(places) == ["b", "a", "d", "c", "e"]
    assert all(isclose(hypot(x, y), 1) for x, y in places.values())
    assert len({(round(x, 6), round(y, 6)) for x, y in places.values()}) == 5
    assert circle(edges) == places
    assert circle([]) == {}
