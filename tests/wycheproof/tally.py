"""Run the cases of a file, and count their outcomes.

Each case is run or left out. Every deviation from 'run, with the result of the vector' has a
remark, which docs/wycheproof.md repeats with its count. Independent of algorithms.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tests.wycheproof.vectors import Case, cases


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case that did not fail."""

    remark: str = ""
    run: bool = True


AS_SAID = Verdict()

# Runs one case and raises (mostly an AssertionError) if the wrapper misbehaves.
Run = Callable[[Case], Verdict]


def left_out(why: str) -> Verdict:
    """Return the verdict on a case that our wrapper has no way to be asked."""
    return Verdict(why, run=False)


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of all cases of a file."""

    verdicts: Counter[Verdict]
    failures: list[str]

    @property
    def run(self) -> int:
        """How many were run."""
        return sum(count for verdict, count in self.verdicts.items() if verdict.run)

    @property
    def left_out(self) -> int:
        """How many were not."""
        return self.verdicts.total() - self.run

    @property
    def remarks(self) -> set[str]:
        """Every remark with its count, as the table writes it."""
        return {
            f"{count} {verdict.remark}"
            for verdict, count in self.verdicts.items()
            if verdict.remark
        }


@cache
def tally(file: str, run: Run) -> Tally:
    """Run every case of a file; one that fails, in whatever way, is named by its tcId."""
    verdicts: Counter[Verdict] = Counter()
    failures = []
    for case in cases(file):
        try:
            verdicts[run(case)] += 1
        # Also an error of the libraries below that got past our wrapper.
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {error}")
    return Tally(verdicts, failures)
