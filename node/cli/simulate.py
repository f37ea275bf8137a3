"""`parley simulate`: write journals of real nodes with generated traffic in simulated time.

The reported totals are counted from the journals.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from parley._crypto.auditor import AuditorKey, AuditorPrivateKey
from parley._crypto.keyfile import load_auditor_key, save_auditor_key
from parley._node.apps.simulate.plan import Plan, Traffic
from parley._node.apps.simulate.tally import Counts, Tally, count
from parley._node.apps.simulate.world import Keeping, simulate
from parley._node.cli.logging_setup import set_up_logging
from parley._node.cli.output import Output
from parley._node.cli.run import event_loop
from parley._node.cli.signals import run_until_interrupted
from parley._node.cli.terminal import show_stages
from parley._node.errors import ConfigError, FileError
from parley._node.journal.segments import list_segments
from parley._node.protocol.codes import result_label

KEY_FILE = "auditor.key"


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """The options of `parley simulate`."""

    journals: Path
    nodes: int
    minutes: float
    seed: int
    auditor: str | None
    segment_size: int
    rate: float
    traffic: list[str] | None
    payload: int | None
    burst: int | None
    latency: float
    one_suite: bool
    loop: str
    as_json: bool


def simulation(given: SimulationOptions) -> None:
    set_up_logging("error")
    out = Output(given.as_json)
    plan = Plan(
        nodes=given.nodes,
        minutes=_positive("--minutes", given.minutes),
        seed=given.seed,
        rate=_positive("--rate", given.rate),
        payload=given.payload,
        burst=given.burst,
        latency=_positive("--latency", given.latency, least=0.0),
        traffic=frozenset(map(Traffic, given.traffic or Traffic)),
        mixed=not given.one_suite,
    )
    if given.journals.is_dir() and list_segments(given.journals):
        raise FileError(
            f"cannot write journals to '{given.journals}': it has journals already; name another "
            "directory"
        )
    given.journals.mkdir(mode=0o700, parents=True, exist_ok=True)
    key, key_file = _auditor(given.auditor, given.journals.absolute().parent / KEY_FILE)
    began = perf_counter()
    tally = _simulated(out, plan, Keeping(given.journals, key, given.segment_size), given.loop)
    seconds = perf_counter() - began
    with show_stages(out) as stage:
        stage("counting records")
        counts = count(given.journals)
    _show(out, tally, counts, seconds)
    if key_file is not None:
        out.print(f"auditor    {key_file}")
    out.done(
        journals=str(given.journals),
        auditor=key.text,
        auditor_key_file=str(key_file) if key_file else None,
        seconds=seconds,
        simulated_seconds=plan.seconds,
        kept=counts.fields(),
        traffic=tally.fields(),
    )


def _simulated(out: Output, plan: Plan, keeping: Keeping, loop: str) -> Tally:
    tallies: list[Tally] = []
    with _progress(out, plan) as passed:

        async def running() -> None:
            tallies.append(await simulate(plan, passed, keeping))

        anyio.run(run_until_interrupted, running, **event_loop(loop))
    return tallies[0]


def _positive(option: str, value: float, least: float | None = None) -> float:
    if not (0 < value < 1e6 or value == least):
        zero = " or 0" if least == 0 else ""
        raise ConfigError(f"invalid {option} {value:g}: expected a number above 0{zero}")
    return value


def _auditor(text: str | None, path: Path) -> tuple[AuditorKey, Path | None]:
    """Return the public key to encrypt to, and the file of its private key, if it is local."""
    if text is not None:
        return AuditorKey.parse(text), None
    if path.exists():
        return load_auditor_key(path).public, path
    key = AuditorPrivateKey.create()
    save_auditor_key(path, key)
    return key.public, path


@contextmanager
def _progress(out: Output, plan: Plan) -> Iterator[Callable[[float], None]]:
    """Show progress in simulated time at a terminal."""
    progress = out.bar(
        TextColumn("simulating"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} s"),
        TimeRemainingColumn(),
    )
    with progress:
        task = progress.add_task("", total=plan.seconds)
        yield lambda seconds: progress.update(task, completed=seconds)


def _show(out: Output, tally: Tally, counts: Counts, seconds: float) -> None:
    events = counts.total()
    table = Table("what", "count", "how")
    rows: list[tuple[str, int, dict[str, Any]]] = [
        ("sessions", tally.sessions, tally.endings),
        ("calls", tally.calls.total(), named_outcomes(tally.outcomes())),
        ("notes published", tally.published.total(), tally.published),
        ("notes received", tally.received.total(), tally.received),
        ("slow consumers", tally.slow_resets.total(), tally.slow_resets),
        ("named events", tally.emits.total(), tally.emits),
        ("files", tally.files.total(), tally.files),
        ("key updates, rekeys", tally.key_updates + tally.rekeys, {}),
        ("events recorded", events, {}),
        ("segments", counts.segments, {"bytes": counts.size}),
    ]
    for what, number, how in rows:
        table.add_row(what, f"{number:,}", ", ".join(f"{k}: {v:,}" for k, v in sorted(how.items())))
    out.table(table)
    out.print(f"simulated  in {seconds:,.1f} s: {events / seconds:,.0f} events/s")


def named_outcomes(outcomes: Counter[str]) -> dict[str, int]:
    """Replace result codes by their names."""
    return {
        result_label(int(outcome)) if outcome.isdecimal() else outcome: count
        for outcome, count in outcomes.items()
    }
