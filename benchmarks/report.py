"""Rounds as a row: medians, and the ratio to what ours is held against, with its spread.

A ratio above 1 is in our favour only where more is better; a row says which. That of
processor time is always: how much of it the other side needs, by what ours needs.
"""

from statistics import median
from typing import Any

from benchmarks.cases import Case
from benchmarks.rounds import Measurement, Round


def headings(other: str) -> str:
    """The line above all rows; `other` is what ours is held against."""
    return (
        f"{'case':18} {'ours':>12} {other:>12} {'':13} {'ratio':>6} {'spread':>13}"
        f" {'cpu ratio':>9}   {'cpu us/op, client + server':34} others"
    )


def row(name: str, case: Case, done: list[Round], other: str = "baseline") -> dict[str, Any]:
    """A case's figures. `ratio` is our value by that of the `baseline`, which is the `other`;
    `cpu_ratio` is the other's processor time by ours: median, least and most of the rounds."""
    ours = [each.ours for each in done]
    found: dict[str, Any] = {
        "case": name,
        "title": case.title,
        "unit": case.unit,
        "less_is_better": case.less_is_better,
        "ours": summary(ours),
    }
    baseline = [each.baseline for each in done if each.baseline is not None]
    if baseline:
        found["beside"] = other
        ratios = [a.value / b.value for a, b in zip(ours, baseline, strict=True)]
        found["baseline"] = summary(baseline)
        found["ratio"] = spread(ratios)
        found["cpu_ratio"] = spread(
            [b.cpu_us / a.cpu_us for a, b in zip(ours, baseline, strict=True)]
        )
    found["others"] = round(max(each.others for each in done), 2)
    return found


def spread(ratios: list[float]) -> list[float]:
    """Median, least and most."""
    return [round(value, 3) for value in (median(ratios), min(ratios), max(ratios))]


def summary(measured: list[Measurement]) -> dict[str, Any]:
    """One side in all rounds: medians, what was lost at worst, and each round's value."""
    return {
        "value": round(median(one.value for one in measured), 1),
        "client_us": round(median(one.client_us for one in measured), 3),
        "server_us": round(median(one.server_us for one in measured), 3),
        "lost": round(max(one.lost for one in measured), 4),
        "all": [round(one.value, 1) for one in measured],
    }


def line(found: dict[str, Any]) -> str:
    """A row as text."""
    ours, baseline = found["ours"], found.get("baseline")
    text = f"{found['case']:18} {number(ours['value']):>12} "
    text += f"{number(baseline['value']) if baseline else '':>12} {found['unit']:13} "
    if baseline:
        middle, least, most = found["ratio"]
        text += f"{middle:6.3f} {f'{least:.3f}-{most:.3f}':>13} {found['cpu_ratio'][0]:9.3f}   "
    else:
        text += f"{'':33}"
    cpu = [processor_time(side) for side in (ours, baseline) if side]
    text += f"{' : '.join(cpu):34} {found['others']:.2f}"
    lost = [f"{side['lost']:.2%}" for side in (ours, baseline) if side]
    if any(side["lost"] > 0 for side in (ours, baseline) if side):
        text += f"  lost {' : '.join(lost)}"
    return text


def processor_time(side: dict[str, Any]) -> str:
    """Of one operation, in microseconds: the client's and the server's."""
    return f"{side['client_us']:.2f} + {side['server_us']:.2f}"


def number(value: float) -> str:
    """Digits in threes; one after the point below a hundred."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
