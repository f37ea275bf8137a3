"""`parley doctor`: find problems of this machine, the settings and a connection.

Each finding has a reason and advice. Nothing is changed.
"""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import click
from rich import box
from rich.markup import escape
from rich.table import Table

from parley._crypto.registry import Suite
from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.cli.doctor.identity_checks import check_ended_ids, check_own_key
from parley._node.cli.doctor.machine import check_machine, versions
from parley._node.cli.doctor.settings_checks import (
    check_address,
    check_bus,
    check_contents,
    check_journal,
    check_settings,
    check_store,
)
from parley._node.cli.exit_codes import Exit
from parley._node.cli.first_contact import open_node
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, format_value, pluralise
from parley._node.cli.run import dial, peer_fields, run
from parley._node.errors import ParleyError
from parley._node.logs import one_line
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import VERSION
from parley._node.protocol.limits import NEGOTIATED, Limits
from parley._node.settings import Settings, load_settings
from parley._node.trust.petnames import Petnames

SLOW_ROUND_TRIP: Final = 0.5  # seconds
SLOW_HANDSHAKE: Final = 3.0  # the limit is 10 s


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a connection. `trust` is the policy's name; `pinned` is whether the address has a
    node ID.
    """

    suite: Suite | None
    trust: str
    pinned: bool
    limits: Limits
    own_identity: bool
    handshake: float
    round_trip: float


def weaknesses(facts: Facts) -> Iterator[Diagnosis]:
    """Yield the findings about a connection."""
    if facts.suite is None:
        yield Diagnosis(
            Level.WEAK,
            "encryption",
            "none: an attacker can read and change all traffic and impersonate either side",
            "leave --plaintext out on both sides",
        )
    else:
        yield Diagnosis(
            Level.OK, "encryption", f"{facts.suite.cipher}; both sides are authenticated"
        )
        yield from _suite(facts.suite, facts.limits)
        yield _trust(facts)
        if not facts.own_identity:
            yield Diagnosis(
                Level.NOTE,
                "identity",
                "temporary: the other side will not recognise this node next time",
                "leave --fresh out",
            )
    yield from _times(facts)


def _suite(suite: Suite, limits: Limits) -> Iterator[Diagnosis]:
    if suite.kex == "x25519":
        yield Diagnosis(
            Level.WEAK,
            "kex",
            "x25519: a future quantum computer can decrypt traffic recorded today",
            "put x25519-mlkem768 first in --kex on both sides, or --require it",
        )
    else:
        yield Diagnosis(Level.OK, "kex", f"{suite.kex}: resists quantum computers")
    if suite.signing == "ml-dsa-65":
        yield Diagnosis(Level.OK, "signing", "ml-dsa-65: resists quantum computers")
    else:
        yield Diagnosis(
            Level.NOTE,
            "signing",
            f"{suite.signing}: secure today, but a quantum computer could forge stored seals",
            "create keys with parley id new --algorithm ml-dsa-65 on both sides, and --require "
            "ml-dsa-65",
        )
    if suite.sealing == "each":
        yield Diagnosis(Level.OK, "sealing", "each: every event is signed")
        return
    usual = NEGOTIATED["seal_delay_ms"].default, NEGOTIATED["seal_events"].default
    seen = f"chain: one signature for at most {limits.seal_events:,} events"
    seen += f" or {limits.seal_delay_ms:,} ms"
    if limits.seal_delay_ms > usual[0] or limits.seal_events > usual[1]:
        text = f"{seen}; events after the last seal cannot be proved to others"
        yield Diagnosis(Level.NOTE, "sealing", text, "lower both limits, or --sealing each")
    else:
        yield Diagnosis(Level.OK, "sealing", seen)


def _trust(facts: Facts) -> Diagnosis:
    mend = "append #NODEID to the address; get the ID from the operator over a separate channel"
    if facts.pinned:
        return Diagnosis(
            Level.OK, "trust", "the address has the node ID; no other node is accepted"
        )
    if facts.trust == "any":
        text = "any: any node that answers at this address is accepted"
        return Diagnosis(Level.WEAK, "trust", text, mend)
    if facts.trust == "first-use":
        text = (
            "first-use: the ID was not checked at the first connection, and is checked from the "
            "second on"
        )
        return Diagnosis(Level.NOTE, "trust", text, mend)
    return Diagnosis(Level.OK, "trust", f"{facts.trust}: the ID was known before")


def _times(facts: Facts) -> Iterator[Diagnosis]:
    for subject, seconds, slow in (
        ("handshake", facts.handshake, SLOW_HANDSHAKE),
        ("round trip", facts.round_trip, SLOW_ROUND_TRIP),
    ):
        if seconds > slow:
            text = f"{seconds:.3f} s is slow"
            yield Diagnosis(
                Level.NOTE, subject, text, "check the network and the load of that machine"
            )
        else:
            yield Diagnosis(Level.OK, subject, f"{seconds * 1e3:.3f} ms")


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
    try:
        settings = load_settings(config)
    except ParleyError:
        settings = Settings()  # check_settings reports it
    out = Output(options.as_json, follow=settings.serve.follows_successors)
    found = versions()
    out.event("versions", **found)
    out.table(_facts("versions", {k: v or "not installed" for k, v in found.items()}))
    findings = list(check_machine())
    _show(out, "this machine", findings)
    spoken = [*check_settings(config), *(check_address("dialect", each) for each in dialect or ())]
    findings += spoken
    _show(out, "other dialects", spoken)
    identities = [*check_own_key(options, settings), *check_ended_ids(settings)]
    findings += identities
    _show(out, "identities", identities)
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
    problems = pluralise(counts[Level.PROBLEM], "problem")
    notes = pluralise(counts[Level.NOTE], "note")
    out.print(f"{counts[Level.OK]} ok, {notes}, {counts[Level.WEAK]} weak, {problems}")
    out.done(**{str(level): number for level, number in counts.items()})
    if counts[Level.PROBLEM]:
        raise click.exceptions.Exit(Exit.FAILED)


async def _connection(
    options: NodeOptions, out: Output, address: str, count: int
) -> list[Diagnosis]:
    trust = options.dialling_trust(address)
    async with open_node(options, out, address) as node:
        began = perf_counter()
        peer = await dial(node, address, trust)
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
        **peer_fields(peer),
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
        "node ID": petnames.beside(peer.node_id or "unknown (unencrypted)"),
        "protocol": f"version {VERSION}",
        "role": f"{peer.role} (as the peer claims)",
        "suite": ", ".join(suite.values()) or "none",
        "limits": ", ".join(f"{name} {value:,}" for name, value in asdict(peer.limits).items()),
        "node info": format_value(dict(peer.info)) if peer.info else "nothing",
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
