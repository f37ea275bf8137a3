"""What a setting costs or saves: one case, with the default and with one thing changed.

What is compared is processor time for an operation; speed alone would also show what else
the machine did meanwhile.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from benchmarks.cases import CASES
from benchmarks.rounds import Measurement, measure
from benchmarks.task import Task

_LIMITS = "PARLEY_NODE_LIMITS_"
_ALGORITHMS = "PARLEY_NODE_ALGORITHMS_"


@dataclass(frozen=True, slots=True)
class Trial:
    """`changes` are fields of the case's task; `settings` are variables."""

    case: str
    title: str
    settings: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)

    def task(self, seconds: float) -> Task:
        """The case's task with this change."""
        task = CASES[self.case].lasting(seconds)
        return replace(task, settings=self.settings, **self.changes)


def _everywhere(title: str, **settings: str) -> list[Trial]:
    return [Trial(case, title, settings) for case in ("calls", "calls-64", "notes-1")]


TRIALS: tuple[Trial, ...] = (
    *_everywhere("sealing `each`", **{_ALGORITHMS + "SEALING": "each"}),
    *_everywhere("`seal_events` 8", **{_LIMITS + "SEAL_EVENTS": "8"}),
    *_everywhere("`seal_events` 1024", **{_LIMITS + "SEAL_EVENTS": "1024"}),
    *_everywhere("`seal_delay_ms` 0", **{_LIMITS + "SEAL_DELAY_MS": "0"}),
    *_everywhere("`seal_delay_ms` 1000", **{_LIMITS + "SEAL_DELAY_MS": "1000"}),
    *_everywhere("cipher `chacha20-poly1305`", **{_ALGORITHMS + "CIPHER": "chacha20-poly1305"}),
    *_everywhere("hash `sha256`", **{_ALGORITHMS + "HASH": "sha256"}),
    *_everywhere("hash `blake2b-256`", **{_ALGORITHMS + "HASH": "blake2b-256"}),
    *_everywhere("hash `sha512`", **{_ALGORITHMS + "HASH": "sha512"}),
    *_everywhere("padding `padme`", PARLEY_NODE_PADDING="padme"),
    *_everywhere("padding `bucket:1024`", PARLEY_NODE_PADDING="bucket:1024"),
    *_everywhere("deliver `sealed`", PARLEY_NODE_DELIVER="sealed"),
    Trial("notes-1", "read by `batches()`", changes={"batches": True}),
    Trial("calls-64", "4 in flight", changes={"count": 4}),
    Trial("calls-64", "16 in flight", changes={"count": 16}),
    Trial("calls-64", "256 in flight", changes={"count": 256}),
    Trial("bulk-1m", "pieces of 4 KiB (each as an operation)", changes={"size": 4096}),
    Trial("bulk-1m", "`stream_window` 65536", {_LIMITS + "STREAM_WINDOW": "65536"}),
    Trial("bulk-1m", "`stream_window` 1048576", {_LIMITS + "STREAM_WINDOW": "1048576"}),
    Trial("bulk-1m", "`stream_window` 2097152", {_LIMITS + "STREAM_WINDOW": "2097152"}),
    Trial("bulk-1m", "cipher `chacha20-poly1305`", {_ALGORITHMS + "CIPHER": "chacha20-poly1305"}),
    Trial("bulk-1m", "hash `sha256`", {_ALGORITHMS + "HASH": "sha256"}),
    Trial("bulk-1m", "hash `blake2b-256`", {_ALGORITHMS + "HASH": "blake2b-256"}),
    Trial("handshakes", "kex `x25519`", {_ALGORITHMS + "KEX": "x25519"}),
)
TUNED = list(dict.fromkeys(trial.case for trial in TRIALS))


def tune(
    cases: list[str], seconds: float, rounds: int = 3, quiet: float = 1.0
) -> Iterator[dict[str, Any]]:
    """A row for each trial of the cases: value and processor time by those of the default."""
    for case in cases:
        trials = [trial for trial in TRIALS if trial.case == case]
        usual = [measure("ours", CASES[case].lasting(seconds), quiet=quiet) for _ in range(rounds)]
        yield _row(Trial(case, "default"), usual, usual)
        for trial in trials:
            found = [measure("ours", trial.task(seconds), quiet=quiet) for _ in range(rounds)]
            yield _row(trial, found, usual)


def _row(trial: Trial, found: list[Measurement], usual: list[Measurement]) -> dict[str, Any]:
    value, cpu = _medians(found)
    usual_value, usual_cpu = _medians(usual)
    return {
        "case": trial.case,
        "trial": trial.title,
        "unit": CASES[trial.case].unit,
        "value": round(value, 1),
        "cpu_us": round(cpu, 3),
        "value_ratio": round(value / usual_value, 3),
        "cpu_ratio": round(cpu / usual_cpu, 3),
        "others": round(max(one.others for one in found), 2),
    }


def _medians(found: list[Measurement]) -> tuple[float, float]:
    return median(one.value for one in found), median(one.cpu_us for one in found)


def main() -> None:
    """Print the trials."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(TUNED))
    options.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    given = options.parse_args()
    if unknown := set(given.cases) - set(TUNED):
        options.error(f"no trial for: {', '.join(sorted(unknown))}")
    for row in tune(given.cases or TUNED, given.seconds, given.rounds):
        print(json.dumps(row) if given.json else line(row), flush=True)


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    text = f"{row['case']:11} {row['trial']:40} {row['value']:>12,.1f} {row['unit']:14}"
    text += f"x{row['value_ratio']:<6.2f} {row['cpu_us']:>10,.2f} us x{row['cpu_ratio']:<6.2f}"
    return f"{text} others {row['others']:.2f}"


if __name__ == "__main__":
    main()
