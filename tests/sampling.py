"""Samples of sweeps that take too long as a whole: one bit of each byte, and suites that cover all
pairs of algorithms. The seed of the run chooses them, and `--hypothesis-seed` repeats them.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from random import Random  # noqa: TID251 - a sample of cases
from typing import Any

import pytest

# Set by `configure`, before test modules are imported.
every_bit = False
seed = 0


def add_option(parser: pytest.Parser) -> None:
    """Add `--every-bit`."""
    parser.addoption(
        "--every-bit",
        action="store_true",
        help="change every bit of each byte, not one; cut after every byte; run all suites",
    )


def configure(config: pytest.Config) -> None:
    """Take the seed of the run."""
    global every_bit, seed  # cases of sweeps are made while modules are imported
    every_bit = config.getoption("every_bit")
    seed = int(config.option.hypothesis_seed)


def bits(place: int) -> Iterable[int]:
    """The bits to change in the byte at `place`: one, which eight consecutive seeds change."""
    return range(8) if every_bit else ((seed + place) % 8,)


def pairwise(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of options in which each pair of options occurs."""
    everything = list(product(*options))
    if every_bit:
        return everything
    Random(seed).shuffle(everything)
    missing = {pair for combination in everything for pair in _pairs(combination)}
    chosen = []
    while missing:
        best = max(everything, key=lambda combination: len(missing & _pairs(combination)))
        missing -= _pairs(best)
        chosen.append(best)
    return chosen


def _pairs(combination: tuple[Any, ...]) -> set[Any]:
    return set(combinations(enumerate(combination), 2))
