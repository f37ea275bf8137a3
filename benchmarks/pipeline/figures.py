"""Figures and a table of the pipeline's speed: `python -m benchmarks.pipeline.figures FILE DIR`.

FILE has the results of `python -m benchmarks.pipeline scale --json FILE`. The figures
`performance-rows.svg` and `performance-cores.svg` are written to DIR, and the table is printed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import FuncFormatter

from benchmarks.pipeline.scaling import LOCAL, MASTERS, Measurement, read_results
from parley._pipeline.report.plots import COLOURS, WIDTH, svg_drawing


def main() -> None:
    """Write the figures and print the table."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.figures")
    options.add_argument("file", type=Path, metavar="FILE", help="results of `scale`")
    options.add_argument("directory", type=Path, metavar="DIR", help="for the figures")
    given = options.parse_args()
    found = read_results(given.file)
    if not any(one.master == LOCAL for one in found):
        options.error(f"{given.file} has no results on {LOCAL}")
    (given.directory / "performance-rows.svg").write_text(rows_figure(found))
    (given.directory / "performance-cores.svg").write_text(cores_figure(found))
    print("\n".join(table(found)))


def by_size(found: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements of all sizes on the same master."""
    return sorted((one for one in found if one.master == LOCAL), key=lambda one: one.rows)


def by_cores(found: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements of all masters with the same rows."""
    sizes = {one.rows for one in found if one.master != LOCAL}
    some = [one for one in found if one.rows in sizes]
    return sorted(some, key=lambda one: MASTERS.index(one.master))


def rows_figure(found: Sequence[Measurement]) -> str:
    """Return an SVG of rows per second by the number of rows."""
    points = by_size(found)
    with svg_drawing(WIDTH, 3.6) as (figure, svg):
        axes = figure.subplots()
        axes.plot(
            [one.rows for one in points],
            [one.rate for one in points],
            marker="o",
            color=COLOURS[0],
        )
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_title(f"rows per second of a whole run on {LOCAL}, with the start of Java")
        axes.set_xlabel("rows of the run (logarithmic)")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.grid(axis="both")
    return svg[0]


def cores_figure(found: Sequence[Measurement]) -> str:
    """Return an SVG of rows per second by master."""
    bars = by_cores(found)
    rows = bars[0].rows if bars else 0
    with svg_drawing(WIDTH, 1.2 + 0.4 * len(bars)) as (figure, svg):
        axes = figure.subplots()
        places = range(len(bars))
        axes.barh(places, [one.rate for one in bars], color=COLOURS[0], height=0.62)
        axes.set_yticks(places, [one.master for one in bars])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.set_title(f"rows per second of a whole run of {rows:,} rows")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.grid(axis="x")
        axes.set_axisbelow(True)
    return svg[0]


def table(found: Sequence[Measurement]) -> list[str]:
    """Return the lines of a Markdown table of all measurements."""
    lines = ["| rows | master | seconds | rows/s |", "| --- | --- | --- | --- |"]
    return lines + [
        f"| {one.rows:,} | {one.master} | {one.seconds:.1f} | {one.rate:,.0f} |"
        for one in sorted(found, key=lambda one: (one.rows, MASTERS.index(one.master)))
    ]


if __name__ == "__main__":
    main()
