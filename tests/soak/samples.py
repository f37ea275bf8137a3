"""The resources of the two processes, as the operating system reports them, and whether they grow.

Growth is judged by medians, so that one sample has no effect. Sizes are bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Any

import psutil

# A part of the time, and at most so many seconds, in which memory may still find its level.
WARM_UP = 0.3
LONGEST_WARM_UP = 90.0
# Samples that the slope is taken from, at most: it compares each with each.
POINTS = 120


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope of all pairs (Theil and Sen), which tolerates up to 29 % outliers. 0
    for fewer than two points.
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
    """Levels (medians of a fifth) after the warm-up and at the end, and the slope's rise
    over `seconds` between them."""

    first: float
    last: float
    rise: float
    seconds: float

    @property
    def worst(self) -> float:
        """Return the greater of the growth by levels and by slope."""
        return max(self.last - self.first, self.rise)


def growth(points: Sequence[tuple[float, float]]) -> Growth:
    """How a measure grew after its warm-up; `points` are times and values in order."""
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
    """One process over time: `memory` (resident) and the most `files` and `threads`."""

    pid: int
    memory: list[tuple[float, float]] = field(default_factory=list)
    most_files: int = 0
    most_threads: int = 0

    def sample(self, now: float) -> None:
        """Look once."""
        process = psutil.Process(self.pid)
        self.memory.append((now, float(process.memory_info().rss)))
        self.most_files = max(self.most_files, process.num_fds())
        self.most_threads = max(self.most_threads, process.num_threads())

    def count(self) -> dict[str, int]:
        """Descriptors and threads now."""
        process = psutil.Process(self.pid)
        return {"files": process.num_fds(), "threads": process.num_threads()}

    def cpu_seconds(self) -> float:
        """CPU time used so far, of user and system."""
        times: Any = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)
