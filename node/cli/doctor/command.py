"""`parley doctor`: what is wrong or weak here, and with a node that can be reached.

It says what it found, why that matters and how to mend it; it mends nothing itself.
"""

import statistics
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Final

import click
from rich import box
from rich.markup import escape
from rich.table import Table

from parley._node.cli.doctor.addresses import check_address, check_settings
from parley._node.cli.doctor.bus import check_bus, check_contents, check_store
from parley._node.cli.doctor.connection import Facts, weaknesses
from parley._node.cli.doctor.findings import Diagnosis, Level
from parley._node.cli.doctor.journal import check_journal
from parley._node.cli.doctor.machine import check_machine, versions
from parley._node.cli.exits import Exit
from parley._node.cli.introduction import dialling_node
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, counted, show_value
from parley._node.cli.run import described, meet, run
from parley._node.logs import one_line
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import VERSION
from parley._node.trust.petnames import Petnames

COLOURS: Final = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WEAK: "yellow",
    Level.PROBLEM: "red",
}


def doctor(
    options: NodeOptions,
    address: str | None,
    count: int,
    config: Path | None,
    dialect: list[str] | None,
    bus: list[str] | None,
) -> None:
    """Look for what is wrong or weak here, and with a node; exit 1 if there is a problem."""
    out = Output(options.as_json)
    found = versions()
    out.event("versions", **found)
    out.table(_facts("versions", {k: v or "not installed" for k, v in found.items()}))
    findings = list(check_machine())
    _show(out, "this machine", findings)
    spoken = [*check_settings(config), *(check_address("dialect", each) for each in dialect or ())]
    findings += spoken
    _show(out, "other dialects", spoken)
    kept = list(check_journal(config))
    findings += kept
    if kept:
        _show(out, "the journal", kept)
    stored = list(check_bus(config))
    for url in bus or ():
        stored += [*check_store(url), *check_contents(url)]
    findings += stored
    if stored:
        _show(out, "the bus", stored)

    async def meeting(options: NodeOptions, out: Output) -> None:
        findings.extend(await _connection(options, out, address or "", count))

    if address is not None:
        run(options, meeting)
    counts = {level: sum(f.level is level for f in findings) for level in Level}
    problems = counted(counts[Level.PROBLEM], "problem")
    notes = counted(counts[Level.NOTE], "note")
    out.say(f"{counts[Level.OK]} ok, {notes}, {counts[Level.WEAK]} weak, {problems}")
    out.done(**{str(level): number for level, number in counts.items()})
    if counts[Level.PROBLEM]:
        raise click.exceptions.Exit(Exit.FAILED)


async def _connection(
    options: NodeOptions, out: Output, address: str, count: int
) -> list[Diagnosis]:
    trust = options.dialling_trust(address)
    async with dialling_node(options, out, address) as node:
        began = perf_counter()
        peer = await meet(node, address, trust)
        handshake = perf_counter() - began
        round_trip = statistics.median([await peer.ping() for _ in range(count)])
        facts = Facts(
            suite=peer.suite,
            trust=trust.name,
            pinned="#" in address,
            limits=peer.limits,
            own_identity=not options.fresh,
            handshake=handshake,
            round_trip=round_trip,
        )
        await peer.close()
    out.event(
        "connection",
        version=VERSION,
        **described(peer),
        limits=asdict(peer.limits),
        info=dict(peer.info),
        handshake_seconds=handshake,
        round_trip_seconds=round_trip,
    )
    out.table(_facts(f"the connection to {address}", _shown(peer, out.petnames)))
    findings = list(weaknesses(facts))
    _show(out, "this connection", findings)
    return findings


def _shown(peer: Peer, petnames: Petnames) -> dict[str, str]:
    suite = peer.suite.names() if peer.suite else {}
    return {
        "node id": petnames.beside(peer.node_id or "not known: unencrypted"),
        "protocol": f"version {VERSION}",
        "role": f"{peer.role} (it says)",
        "suite": ", ".join(suite.values()) or "none",
        "limits": ", ".join(f"{name} {value:,}" for name, value in asdict(peer.limits).items()),
        "says of itself": show_value(dict(peer.info)) if peer.info else "nothing",
    }


def _facts(title: str, facts: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
    for name, value in facts.items():
        table.add_row(name, escape(one_line(value)))
    return table


def _show(out: Output, title: str, findings: list[Diagnosis]) -> None:
    table = Table("", "what", "finding", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for finding in findings:
        out.event("finding", **asdict(finding))
        text = finding.text + (f"\n-> {finding.mend}" if finding.mend else "")
        level = f"[{COLOURS[finding.level]}]{finding.level}[/]"
        table.add_row(level, escape(one_line(finding.subject)), escape(text))
    out.table(table)
