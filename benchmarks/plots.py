"""The plots of docs/performance, as SVG, from rows of figures.

The same rows give the same bytes, so that a plot changes when a figure does.
"""

from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

SIZE = (5.2, 3.4)  # inches
LOOKS = {"ours": ("Parley", "#1f6feb", "o"), "baseline": ("TLS streams", "#9a6700", "s")}


def plot_growth(rows: list[dict[str, Any]], directory: Path) -> list[Path]:
    """One file for each sweep: microseconds, or bytes, over what grows; both on logarithmic
    axes."""
    return [
        _plot(name, list(points), directory)
        for name, points in groupby(sorted(rows, key=_name), key=_name)
    ]


def _name(row: dict[str, Any]) -> str:
    return str(row["growth"])


def _plot(name: str, points: list[dict[str, Any]], directory: Path) -> Path:
    upward, beside = ("cpu_us", "processor time, us each")
    if "bytes" in points[0]:
        upward, beside = ("bytes", "bytes each")
    curves = [
        Curve(
            *(label, colour, marker),
            [(one["at"], one[upward]) for one in points if one["side"] == side],
        )
        for side, (label, colour, marker) in LOOKS.items()
    ]
    across = points[0]["unit"]
    titles = (points[0]["title"], across, beside)
    return draw(name, titles, curves, directory, base=2 if across == "bytes" else 10)


class Curve(NamedTuple):
    """Points of a plot, with what they look like."""

    label: str
    colour: str
    marker: str
    points: list[tuple[float, float]]


def draw(
    name: str,
    titles: tuple[str, str, str],
    curves: list[Curve],
    directory: Path,
    *,
    base: int = 10,
    upward: str = "log",
) -> Path:
    """A file with curves over a logarithmic axis; `titles` are of the plot and of both axes."""
    # Here, so that whoever only measures does not wait for it.
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    # Text stays text, and names of parts do not depend on the moment.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name})
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for label, colour, marker, points in curves:
        if points:
            across, up = zip(*sorted(points), strict=True)
            axes.plot(across, up, color=colour, marker=marker, markersize=4, label=label)
    axes.set_xscale("log", base=base)
    axes.set_yscale(upward)
    title, below, beside = titles
    axes.set_xlabel(below)
    axes.set_ylabel(beside)
    axes.set_title(title, fontsize="medium")
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(plain)
    axes.grid(visible=True, which="major", linewidth=0.4)
    axes.legend(frameon=False)
    path = directory / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    return path
