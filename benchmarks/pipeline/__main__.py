"""`python -m benchmarks.pipeline [CASE...]`: events, notes, growth, follow, small, scale, stages.

`events` and `notes` compare bronze to silver with a plain pool of processes. Both do the same work
alternately in one run, after a warm-up round; the results are the median, and the ratio of the two.
`small` runs the commands with 98,000 events. `scale` runs the command with 10,000 to 3,000,000
rows, and on local cores and clusters (`scaling`). `stages` gives the processor time of each stage
without Spark, over journals of `parley simulate`.
"""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.pipeline.cases import RATE, audit_files, follow, plain_pool, small
from benchmarks.pipeline.journals import make_journals
from benchmarks.pipeline.scaling import SIZES, measure
from benchmarks.pipeline.stages import simulate_journals, stages
from parley._pipeline.bronze import ingest
from parley._pipeline.gold.cluster import store_of
from parley._pipeline.jobs import refresh
from parley._pipeline.report.page import write_report
from parley._pipeline.silver import SilverStep
from parley.pipeline import Tables, events, open_session

SMALL: Final = 98_000


def main() -> None:
    """Run the cases that were asked for."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    options.add_argument("cases", nargs="*", default=["events", "notes"], metavar="CASE")
    options.add_argument("--events", type=int, default=600_000, help="wire events of `events`")
    options.add_argument("--seconds", type=float, default=60.0, help="of `follow`")
    options.add_argument("--minutes", type=float, default=3.0, help="simulated, of `stages`")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--cores", type=int, default=2)
    options.add_argument("--memory", default="2g", help="of the driver's Java")
    options.add_argument(
        "--sizes",
        type=lambda text: [int(size) for size in text.split(",")],
        default=list(SIZES),
        help="events of `scale`, such as 10000,10000000",
    )
    options.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="append the results of `scale` to FILE, and leave out those that it has",
    )
    given = options.parse_args()
    if "scale" in given.cases:
        for one in measure(given.sizes, given.json):
            print(
                f"scale: {one.rows:,} rows on {one.master} {one.seconds:.1f} s, {one.rate:,.0f}/s",
                flush=True,
            )
        given.cases.remove("scale")
    if "stages" in given.cases:
        with tempfile.TemporaryDirectory() as name:
            simulate_journals(Path(name), given.minutes)
            for title, value in stages(Path(name)):
                print(f"stages: {title} {value:,.1f}", flush=True)
        given.cases.remove("stages")
    if "small" in given.cases:
        for title, seconds in small(SMALL, given.cores).items():
            print(f"small: {title} {seconds:.1f} s", flush=True)
        given.cases.remove("small")
    if not given.cases:
        return
    spark = open_session("benchmark", master=f"local[{given.cores}]", memory=given.memory)
    try:
        for case in given.cases:
            if case == "growth":
                growth(spark, given.events)
            elif case == "follow":
                delays = follow(spark, given.seconds)
                late = delays[len(delays) // 3 :]  # the first batches are Java's warming up
                print(
                    f"follow: {RATE:,} events/s for {given.seconds:.0f} s, delay median "
                    f"{statistics.median(late):.1f} s, most {max(late):.1f} s"
                )
            else:
                compare(spark, case, given.events, given.rounds, given.cores)
    finally:
        spark.stop()


def compare(spark: SparkSession, case: str, count: int, rounds: int, cores: int) -> None:
    """Compare the silver step of one journal with the plain pool."""
    is_notes = case == "notes"
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "journals").mkdir()
        key = make_journals(place / "journals", count // 32 if is_notes else count, notes=is_notes)
        private = key.private_bytes()
        tables = Tables(spark, str(place / "tables"))
        took = _timed(lambda: ingest(spark, str(place / "journals"), tables.root))
        records = tables.bronze().count()
        print(f"{case}: bronze of {records:,} records {took:.1f} s, {records / took:,.0f}/s")
        step = SilverStep([private])
        step(tables, 0)
        rows = events(tables).count()
        spark_times, plain_times = [], []
        bronze = place / "tables" / "bronze"
        with plain_pool(cores) as pool:
            for number in range(-1, rounds):
                out = place / f"plain{number}"
                plain = _timed(lambda o=out: audit_files(pool, bronze, o, private))  # type: ignore[misc]  # defaults bind the loop's values
                shutil.rmtree(out)
                if number < 0:
                    continue  # both have worked once
                plain_times.append(plain)
                spark_times.append(_timed(lambda: step(tables, 0)))
        ours, plain = statistics.median(spark_times), statistics.median(plain_times)
        print(
            f"{case}: silver {rows / ours:,.0f} rows/s ({ours:.1f} s), plain pool of {cores} "
            f"{rows / plain:,.0f} rows/s ({plain:.1f} s), ratio {plain / ours:.2f}"
        )


def growth(spark: SparkSession, count: int) -> None:
    """A whole run, gold included, and its report, over 1, 3 and 10 times as many events."""
    for factor in (1, 3, 10):
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            (place / "journals").mkdir()
            key = make_journals(place / "journals", count * factor)
            tables = Tables(spark, str(place / "tables"))
            step = SilverStep([key.private_bytes()])
            took = _timed(
                lambda p=place, t=tables, s=step: ingest(  # type: ignore[misc]  # defaults bind the loop's values
                    spark, str(p / "journals"), t.root, steps=[s]
                )
            )
            gold = _timed(lambda t=tables: refresh(t))  # type: ignore[misc]  # defaults bind the loop's values
            said = _timed(lambda p=place, t=tables: write_report(store_of(t), p / "report.html"))  # type: ignore[misc]  # defaults bind the loop's values
            print(
                f"growth: {count * factor:,} events, bronze and silver {took:.1f} s, "
                f"gold {gold:.1f} s, {count * factor / (took + gold):,.0f} events/s, "
                f"report {said:.1f} s",
                flush=True,
            )


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


if __name__ == "__main__":
    main()
