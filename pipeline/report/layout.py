"""Where the nodes of the graph stand: on a circle, those who talk most beside each other.

One rule: the same edges give the same picture. Knows no plotting.
"""

from collections.abc import Iterable, Mapping
from math import cos, pi, sin

Point = tuple[float, float]


def circle(edges: Iterable[tuple[str, str, int]]) -> dict[str, Point]:
    """Each node's place on the unit circle, clockwise from the top; edges have a weight."""
    order = _neighbours_first(edges)
    step = 2 * pi / max(len(order), 1)
    return {node: (sin(step * at), cos(step * at)) for at, node in enumerate(order)}


def _neighbours_first(edges: Iterable[tuple[str, str, int]]) -> list[str]:
    """All nodes: first the busiest, then always who talks most with the one before."""
    weights: dict[str, dict[str, int]] = {}
    for one, other, weight in edges:
        for a, b in ((one, other), (other, one)):
            beside = weights.setdefault(a, {})
            beside[b] = beside.get(b, 0) + weight
    left = sorted(weights, key=lambda node: (-sum(weights[node].values()), node))
    order: list[str] = []
    while left:
        beside = weights[order[-1]] if order else {}
        chosen = _heaviest(left, beside)
        order.append(chosen)
        left.remove(chosen)
    return order


def _heaviest(nodes: list[str], weights: Mapping[str, int]) -> str:
    """The first of the heaviest; the first of all if none has a weight."""
    return max(nodes, key=lambda node: weights.get(node, 0))
