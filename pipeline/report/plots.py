"""The report's charts, drawn as SVG by matplotlib.

A chart loads nothing and is embedded as an image, where scripts cannot run. Lines and text follow
the reader's light or dark colour scheme. Names are never parsed as formulas.
"""

import warnings
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from io import StringIO
from math import ceil, cos, log, log2, pi, sin
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FuncFormatter, MultipleLocator

from parley._pipeline.report import format as units
from parley._pipeline.report.cells import Nodes, visible
from parley._pipeline.report.report_data import CallRow, NodeRow, TopicNotes, TrafficPoint

# Distinguishable with most kinds of colour vision, on white and on black.
COLOURS: Final = ("#3d85c6", "#e08a1e", "#2a9d78", "#b072cc", "#c94f4f", "#8a8f98")
FAULTY: Final = "#d03a3a"
BARS: Final = 15
WIDTH: Final = 11.6  # inches: the page's width, so that fonts have the same size as on the page
_LABEL: Final = 30  # maximum number of characters of a name
_INK: Final = "#010203"  # placeholder for the reader's text colour
_SCHEME: Final = (
    "<style>:root{color:#1f2328}"
    "@media (prefers-color-scheme:dark){:root{color:#d5dae1}}"
    "@media print{:root{color:#000}}</style>"
)
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "parley",
    "text.parse_math": False,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def traffic_plot(points: Sequence[TrafficPoint], bucket: int, nodes: Nodes) -> str:
    """Plot events and bytes per second over time by sender; return the image's URL."""
    senders = sorted({point.sender for point in points if point.sender is not None})
    totals = {
        sender: sum(point.wire_bytes for point in points if point.sender == sender)
        for sender in senders
    }
    senders.sort(key=lambda sender: (-totals[sender], sender))
    first, last = points[0].time, points[-1].time
    times = list(range(first, last + 2 * bucket, bucket))
    at = {time: number for number, time in enumerate(times)}
    named: list[str | None] = [*senders]
    if any(point.sender is None for point in points):
        named.append(None)
    with _drawing(WIDTH, 5.2) as (figure, address):
        axes = figure.subplots(2, 1, sharex=True)
        for one, title, field in zip(
            axes, ("events per second", "bytes per second"), ("events", "wire_bytes"), strict=True
        ):
            floor = [0.0] * len(times)
            for number, sender in enumerate(named):
                top = list(floor)
                for point in points:
                    if point.sender == sender:
                        top[at[point.time]] += getattr(point, field) * 1_000_000 / bucket
                top[-1] = top[-2]
                label = "all others" if sender is None else nodes.display_name(sender)
                colour = COLOURS[-1] if sender is None else COLOURS[number]
                one.fill_between(
                    [units.moment(time) for time in times],
                    floor,
                    top,
                    step="post",
                    color=colour,
                    linewidth=0,
                    label=label,
                )
                floor = top
            one.set_title(title)
            one.set_ylim(bottom=0)
            one.margins(x=0)
            one.grid(axis="y")
        axes[1].yaxis.set_major_locator(MultipleLocator(_binary_step(axes[1].get_ylim()[1])))
        axes[1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(units.size(value))))
        axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.3g}"))
        # matplotlib does not annotate these two functions.
        locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]  # matplotlib's
        axes[1].xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib's
        axes[1].xaxis.set_major_formatter(dates)
        axes[1].set_xlabel("time (UTC)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return address[0]


def latency_plot(rows: Sequence[CallRow]) -> str:
    """Plot the p50, p95, p99 and maximum latency of each topic; return the image's URL."""
    shown = [row for row in rows if row.p50_us is not None][:BARS]
    with _drawing(WIDTH, 1.3 + 0.34 * len(shown)) as (figure, address):
        axes = figure.subplots()
        heights = range(len(shown))
        fields = (("p50", "o", 0), ("p95", "D", 2), ("p99", "s", 1), ("max", "|", 4))
        axes.hlines(
            heights,
            [max(row.p50_us or 0, 1) for row in shown],
            [max(row.max_us or 0, 1) for row in shown],
            color=COLOURS[-1],
            linewidth=2,
            alpha=0.6,
        )
        for name, marker, colour in fields:
            axes.scatter(
                [max(getattr(row, f"{name}_us") or 0, 1) for row in shown],
                heights,
                marker=marker,
                s=60 if marker == "|" else 34,
                color=COLOURS[colour],
                label="longest" if name == "max" else name,
                zorder=3,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: _short(units.duration(value)))
        )
        axes.set_xlabel("time from call to answer (logarithmic)")
        _name_rows(axes, [row.topic or "(none)" for row in shown])
        axes.grid(axis="x")
        figure.legend(loc="outside upper center", ncols=4)
    return address[0]


def topics_plot(rows: Sequence[TopicNotes]) -> str:
    """Plot the topics with the most notes; return the image's URL."""
    shown = rows[:BARS]
    with _drawing(WIDTH, 0.9 + 0.34 * len(shown)) as (figure, address):
        axes = figure.subplots()
        axes.barh(range(len(shown)), [row.notes for row in shown], color=COLOURS[0], height=0.62)
        _name_rows(axes, [row.topic or "(empty)" for row in shown])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.count(value)))
        axes.set_xlabel("notes")
        axes.grid(axis="x")
        axes.set_axisbelow(True)
    return address[0]


Arrow = tuple[str, str, int]  # sender, receiver and weight


def graph_plot(arrows: Sequence[Arrow], rows: Sequence[NodeRow], nodes: Nodes) -> str:
    """Plot nodes on a circle with arrows between them; return the image's URL."""
    places = circle(arrows)
    known = {row.node: row for row in rows}
    most = max(amount for _, _, amount in arrows)
    with _drawing(WIDTH, 7.2) as (figure, address):
        axes = figure.subplots()
        for one, other, amount in arrows:
            weight = log(1 + amount) / log(1 + most)
            arrow = FancyArrowPatch(
                places[one],
                places[other],
                connectionstyle="arc3,rad=0.12",
                arrowstyle="-|>",
                mutation_scale=7 + 5 * weight,
                shrinkA=11,
                shrinkB=11,
                linewidth=0.5 + 3 * weight,
                color=COLOURS[-1],
                alpha=0.35 + 0.5 * weight,
            )
            axes.add_patch(arrow)
        for node, (x, y) in places.items():
            row = known.get(node)
            faulty = row is not None and row.faults > 0
            silent = row is None or not row.journal
            axes.scatter(
                x,
                y,
                s=190,
                color="none" if silent else FAULTY if faulty else COLOURS[0],
                edgecolors=FAULTY if faulty else COLOURS[0],
                linewidths=2,
                marker="s" if faulty else "o",
                zorder=3,
            )
            axes.annotate(
                nodes.display_name(node),
                (x, y),
                xytext=(16 * x, 16 * y),
                textcoords="offset points",
                ha="left" if x > 0.2 else "right" if x < -0.2 else "center",
                va="bottom" if y > 0.2 else "top" if y < -0.2 else "center",
            )
        axes.set_xlim(-2.2, 2.2)
        axes.set_ylim(-1.25, 1.25)
        axes.set_aspect("equal")
        axes.axis("off")
    return address[0]


def _binary_step(top: float) -> float:
    """Return a power of two that divides the range into about four steps."""
    return float(2 ** max(ceil(log2(max(top, 1) / 4.5)), 0))


def _short(text: str) -> str:
    """Format a number without trailing zeros."""
    return text.replace(".00 ", " ").replace(".0 ", " ")


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows with names, the first one at the top."""
    axes.set_yticks(range(len(names)), [visible(name, _LABEL) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


@contextmanager
def _drawing(width: float, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """Create a figure of this size in inches; on exit its image URL is appended to the list."""
    address: list[str] = []
    with svg_drawing(width, height) as (figure, svg):
        yield figure, address
    encoded = b64encode(svg[0].encode()).decode()
    address.append(f"data:image/svg+xml;base64,{encoded}")


@contextmanager
def svg_drawing(width: float, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """Create a figure of this size in inches; on exit its SVG is appended to the list."""
    drawn: list[str] = []
    with rc_context(_STYLE), warnings.catch_warnings():
        # The reader's fonts draw the text; the font used here only measures it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, drawn
        file = StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = svg.replace("'DejaVu Sans'", "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans'")
    end = svg.index(">") + 1
    drawn.append(svg[:end] + _SCHEME + svg[end:])


Point = tuple[float, float]


def circle(edges: Iterable[Arrow]) -> dict[str, Point]:
    """Place the nodes on the unit circle, clockwise from the top, with busy pairs as neighbours.

    Edges have weights. The same edges always produce the same layout.
    """
    order = _order_by_neighbours(edges)
    step = 2 * pi / max(len(order), 1)
    return {node: (sin(step * at), cos(step * at)) for at, node in enumerate(order)}


def _order_by_neighbours(edges: Iterable[Arrow]) -> list[str]:
    """Order all nodes: first the busiest, then repeatedly the node with the most traffic to the
    last.
    """
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
    """Return the first of the heaviest nodes, or the first node if none has a weight."""
    return max(nodes, key=lambda node: weights.get(node, 0))
