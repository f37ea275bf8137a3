"""The reference model, on graphs that can be checked by hand."""

import pytest

from tests.node.apps.simulate.federation.reference_model import Truth


def truth(edges: list[tuple[int, int]], servers: int, **denied: tuple[int, ...]) -> Truth:
    """Create a graph in which all servers relay for all, with exceptions: `s2=(1,)`, 2 not for
    1.
    """
    linked: dict[int, list[int]] = {number: [] for number in range(servers)}
    for one, other in edges:
        linked[one].append(other)
        linked[other].append(one)
    carries = {
        number: frozenset(near) - set(denied.get(f"s{number}", ()))
        for number, near in linked.items()
    }
    return Truth(linked, carries)


CHAIN = [(number, number + 1) for number in range(9)]
DIAMOND = [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2), (2, 5)]


def test_parts() -> None:
    assert truth(CHAIN, 10).parts() == [frozenset(range(10))]
    parted = truth([(0, 1), (2, 3)], 5).parts()
    assert sorted(map(sorted, parted)) == [[0, 1], [2, 3], [4]]


def test_how_far_the_last_is() -> None:
    assert truth(CHAIN, 10).depth() == 9
    assert truth(DIAMOND, 6).depth() == 3
    assert truth([], 1).depth() == 0


def test_a_path_has_at_most_eight_servers() -> None:
    lengths = truth(CHAIN, 10).distances(0)
    assert lengths == {number: number + 1 for number in range(8)}


def test_paths_depend_on_relayed_neighbours() -> None:
    assert truth(DIAMOND, 6).distances(0)[5] == 4
    assert truth(DIAMOND, 6, s1=(0,)).distances(0)[5] == 5
    # 1 can reach 2, but only 4 can use it as an intermediate hop.
    assert truth(DIAMOND, 6, s2=(1,)).distances(0) == {0: 1, 1: 2, 3: 2, 2: 3, 4: 3, 5: 5}
    assert 5 not in truth(DIAMOND, 6, s2=(1, 4)).distances(0)
    assert truth(DIAMOND, 6, s0=(1, 3)).distances(0)[5] == 4  # the origin needs no permission


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ((0, 1, 2, 5), None),
        ((0, 3, 4, 2, 5), "2 does not carry for 4"),
        ((0, 2, 5), "there is no link from 0 to 2"),
        ((0, 1, 0, 1, 2, 5), "it has a server twice"),
        ((0, 1, 2), "it leads elsewhere"),
    ],
)
def test_errors_in_paths(path: tuple[int, ...], fault: str | None) -> None:
    assert truth(DIAMOND, 6, s2=(4,)).fault(path, 0, 5) == fault
