"""`parley simulate federation`: a federation of many servers in simulated time, and what held."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn
from rich.table import Table

from node.apps.simulate.federation.plan import FederationPlan, Misbehaviour
from node.apps.simulate.federation.report import CLAIMS, FederationReport
from node.apps.simulate.federation.run import simulate_federation
from node.cli.completion.suggestions import words
from node.cli.exits import Exit
from node.cli.log_lines import set_up_logging
from node.cli.options import Json
from node.cli.output import Output
from node.federation.limits import MOST_LINKS
from node.protocol.codes import result_label
from node.protocol.federation_types import MOST_SERVERS

FAULTS = "Faults"

ServersOption = Annotated[int, typer.Option(min=2, max=MOST_SERVERS, help="How many servers.")]
SeedOfWorldOption = Annotated[int, typer.Option(help="The same seed gives the same trace.")]
LinksOption = Annotated[int, typer.Option(min=2, max=MOST_LINKS, help="Links of each server.")]
FaultMinutesOption = Annotated[
    float, typer.Option(min=0, max=10_000, help="Simulated minutes with faults.")
]
DialsOption = Annotated[
    float, typer.Option(min=0, max=600, help="Tunnels that each server dials a minute.")
]
CarryOption = Annotated[
    float, typer.Option(min=0, max=1, help="Part of its neighbours that a server carries for.")
]
OneWayOption = Annotated[
    float, typer.Option(min=0, max=10, metavar="SECONDS", help="From server to server.")
]
TraceOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write all that happened there, line by line.")
]
CutsOption = Annotated[
    float,
    typer.Option(min=0, max=3_600, help="Times a link is cut an hour.", rich_help_panel=FAULTS),
]
CrashesOption = Annotated[
    float,
    typer.Option(min=0, max=3_600, help="Times a server dies an hour.", rich_help_panel=FAULTS),
]
LossOption = Annotated[
    float,
    typer.Option(
        min=0, max=1, help="Part of what is sent that comes late.", rich_help_panel=FAULTS
    ),
]
ClocksOption = Annotated[
    float,
    typer.Option(
        min=0,
        max=240,
        metavar="SECONDS",
        help="How far clocks are apart at most.",
        rich_help_panel=FAULTS,
    ),
]
MisbehaviourOption = Annotated[
    Misbehaviour | None,
    typer.Option(
        "--misbehave",
        help="One server does this wrong: the checks should find it.",
        rich_help_panel=FAULTS,
        autocompletion=words(*Misbehaviour),
    ),
]


def federation_simulation(
    servers: ServersOption = 20,
    seed: SeedOfWorldOption = 0,
    links: LinksOption = 4,
    minutes: FaultMinutesOption = 10.0,
    dials: DialsOption = 2.0,
    carry: CarryOption = 0.9,
    latency: OneWayOption = 0.05,
    cuts: CutsOption = 6.0,
    crashes: CrashesOption = 2.0,
    loss: LossOption = 0.01,
    clocks: ClocksOption = 240.0,
    misbehave: MisbehaviourOption = None,
    trace: TraceOption = None,
    as_json: Json = False,
) -> None:
    """Run the core of many federated servers among faults in simulated time; say what held."""
    set_up_logging("error")
    out = Output(as_json)
    plan = FederationPlan(
        servers=servers,
        seed=seed,
        links=links,
        minutes=minutes,
        cuts=cuts,
        crashes=crashes,
        dials=dials,
        latency=latency,
        loss=loss,
        clocks=clocks,
        carry=carry,
        misbehaviour=misbehave,
    )
    began = perf_counter()
    report = _simulated(out, plan, trace)
    seconds = perf_counter() - began
    _show(out, report, seconds)
    for breach in report.breaches:
        out.say(f"broken     at {breach.at:,.1f} s, {breach.claim}: {breach.text}")
        out.event("broken", at=breach.at, claim=breach.claim, text=breach.text)
    out.say(f"trace      {report.trace}")
    out.done(seconds=seconds, seed=seed, held=report.held, **report.fields())
    if not report.held:
        raise typer.Exit(Exit.FINDINGS)


def _simulated(out: Output, plan: FederationPlan, trace: Path | None) -> FederationReport:
    bar = out.bar(
        TextColumn("simulating"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} s"),
    )
    with _opened(trace) as write, bar:
        task = bar.add_task("", total=1.0)
        return simulate_federation(
            plan, lambda passed, total: bar.update(task, completed=passed, total=total), write
        )


@contextmanager
def _opened(trace: Path | None) -> Iterator[Callable[[str], object] | None]:
    """What writes a line to the file of the trace, if there is to be one."""
    if trace is None:
        yield None
        return
    with trace.open("w", encoding="utf-8") as file:
        yield lambda line: print(line, file=file)


def _show(out: Output, report: FederationReport, seconds: float) -> None:
    happened = report.happened
    refused = sum(report.refused.values())
    rows: list[tuple[str, int, str]] = [
        ("links", report.links, f"cut {happened['cut']:,} times"),
        ("servers", report.servers, f"died {happened['die']:,} times"),
        ("cards made", happened["cards made"], f"taken {happened['cards taken']:,} times"),
        ("cards passed on", happened["cards passed on"], f"known already {refused:,} times"),
        ("tunnels dialled", report.answers.total(), _answers(report)),
        ("dials by made-up paths", happened["dials by made-up paths"], ""),
        ("longest way of a dial", report.most_forwards, "forwards"),
        ("bytes sent by a server", report.sent // report.servers, _spread(report)),
        ("memory of a server", report.memory, "bytes"),
    ]
    table = Table("what happened", "count", "how")
    for what, count, how in rows:
        table.add_row(what, f"{count:,}", how)
    out.table(table)
    claims = Table("what held", "checked", "broken")
    for claim, text in CLAIMS.items():
        claims.add_row(text, f"{report.checked[claim]:,}", f"{report.broken[claim]:,}")
    out.table(claims)
    out.say(f"simulated  {report.simulated:,.0f} s in {seconds:,.1f} s")


def _answers(report: FederationReport) -> str:
    answers = sorted(report.answers.items())
    return ", ".join(f"{result_label(code)}: {count:,}" for code, count in answers)


def _spread(report: FederationReport) -> str:
    fields: dict[str, Any] = report.fields()
    if fields["spread_median"] is None:
        return ""
    return f"a card is with all in {fields['spread_median']:.2f} s"
