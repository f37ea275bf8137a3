"""Resource usage of the two processes, as the operating system reports it, and its growth.

Growth is computed from medians, so that a single sample has no effect. Sizes are in bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Any

import psutil

# Fraction of the time, and maximum seconds, of the warm-up in which memory may still rise.
WARM_UP = 0.3
LONGEST_WARM_UP = 90.0
# Maximum number of samples for the slope, which compares each with each.
POINTS = 120


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope of all pairs (Theil and Sen), or 0 for fewer than two points.

    Up to 29 % outliers have no effect.
    """
    step = max(1, len(points) // POINTS)
    slopes = [
        (second - first) / (later - earlier)
        for (earlier, first), (later, second) in combinations(points[::step], 2)
        if later > earlier
    ]
    return median(slopes) if slopes else 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Levels (medians of a fifth) after the warm-up and at the end, and the slope's rise between
    them.
    """

    first: float
    last: float
    rise: float
    seconds: float

    @property
    def worst(self) -> float:
        """The greater of the growths that the levels and the slope show."""
        return max(self.last - self.first, self.rise)


def growth(points: Sequence[tuple[float, float]]) -> Growth:
    """Return the growth after the warm-up; `points` are times and values in order."""
    if not points:
        return Growth(0, 0, 0, 0)
    begin, end = points[0][0], points[-1][0]
    warm = begin + min(LONGEST_WARM_UP, WARM_UP * (end - begin))
    level = [point for point in points if point[0] >= warm]
    fifth = max(1, len(level) // 5)
    seconds = level[-1][0] - level[0][0]
    return Growth(
        median(value for _, value in level[:fifth]),
        median(value for _, value in level[-fifth:]),
        slope(level) * seconds,
        seconds,
    )


@dataclass
class Usage:
    """One process over time: `memory` (resident), and the maximum of `files` and `threads`."""

    pid: int
    memory: list[tuple[float, float]] = field(default_factory=list)
    most_files: int = 0
    most_threads: int = 0

    def sample(self, now: float) -> None:
        """Take one sample."""
        process = psutil.Process(self.pid)
        self.memory.append((now, float(process.memory_info().rss)))
        self.most_files = max(self.most_files, process.num_fds())
        self.most_threads = max(self.most_threads, process.num_threads())

    def count(self) -> dict[str, int]:
        """Return the current numbers of descriptors and threads."""
        process = psutil.Process(self.pid)
        return {"files": process.num_fds(), "threads": process.num_threads()}

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far, user and system."""
        times: Any = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)
