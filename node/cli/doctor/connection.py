"""What is weak about a connection, and why: plain facts in, diagnoses out.

Each diagnosis follows from what was negotiated or given, and says what would change it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from parley._crypto.registry import Suite
from parley._node.cli.doctor.findings import Diagnosis, Level
from parley._node.protocol.limits import NEGOTIATED, Limits

SLOW_ROUND_TRIP: Final = 0.5  # seconds
SLOW_HANDSHAKE: Final = 3.0  # of the 10 s that it may take


@dataclass(frozen=True, slots=True)
class Facts:
    """One connection: `trust` is the policy's name, `pinned` whether the address has an id."""

    suite: Suite | None
    trust: str
    pinned: bool
    limits: Limits
    own_identity: bool
    handshake: float
    round_trip: float


def weaknesses(facts: Facts) -> Iterator[Diagnosis]:
    """Everything about a connection that is not ok, and what is."""
    if facts.suite is None:
        yield Diagnosis(
            Level.WEAK,
            "encryption",
            "none: whoever is on the way reads everything, changes it, or poses as either side",
            "leave --plaintext out on both sides",
        )
    else:
        yield Diagnosis(Level.OK, "encryption", f"{facts.suite.cipher}, and both sides are known")
        yield from _suite(facts.suite, facts.limits)
        yield _trust(facts)
        if not facts.own_identity:
            yield Diagnosis(
                Level.NOTE,
                "identity",
                "made for this command alone: the other side cannot know you again",
                "leave --fresh out",
            )
    yield from _times(facts)


def _suite(suite: Suite, limits: Limits) -> Iterator[Diagnosis]:
    if suite.kex == "x25519":
        yield Diagnosis(
            Level.WEAK,
            "kex",
            "x25519: a quantum computer of the future can read what is recorded today",
            "put x25519-mlkem768 first in --kex on both sides, or --require it",
        )
    else:
        yield Diagnosis(Level.OK, "kex", f"{suite.kex}: also against a quantum computer")
    if suite.signing == "ml-dsa-65":
        yield Diagnosis(Level.OK, "signing", "ml-dsa-65: also against a quantum computer")
    else:
        yield Diagnosis(
            Level.NOTE,
            "signing",
            f"{suite.signing}: as good as any today, but seals that are kept do not outlast a "
            "quantum computer",
            "parley id new --algorithm ml-dsa-65 on both sides, and --require ml-dsa-65",
        )
    if suite.sealing == "each":
        yield Diagnosis(Level.OK, "sealing", "each: every event is signed")
        return
    usual = NEGOTIATED["seal_delay_ms"].default, NEGOTIATED["seal_events"].default
    seen = f"chain: one signature for at most {limits.seal_events:,} events"
    seen += f" or {limits.seal_delay_ms:,} ms"
    if limits.seal_delay_ms > usual[0] or limits.seal_events > usual[1]:
        text = f"{seen}; what came after the last one proves nothing to others"
        yield Diagnosis(Level.NOTE, "sealing", text, "lower both limits, or --sealing each")
    else:
        yield Diagnosis(Level.OK, "sealing", seen)


def _trust(facts: Facts) -> Diagnosis:
    mend = "put #NODEID after the address, as its owner tells you by another way"
    if facts.pinned:
        return Diagnosis(Level.OK, "trust", "the address has the node id: no other is taken")
    if facts.trust == "any":
        text = "any: whoever answers at this address is taken for the right one"
        return Diagnosis(Level.WEAK, "trust", text, mend)
    if facts.trust == "first-use":
        text = "first-use: the id is held to from the second meeting on, the first was not checked"
        return Diagnosis(Level.NOTE, "trust", text, mend)
    return Diagnosis(Level.OK, "trust", f"{facts.trust}: the id was on record before")


def _times(facts: Facts) -> Iterator[Diagnosis]:
    for subject, seconds, slow in (
        ("handshake", facts.handshake, SLOW_HANDSHAKE),
        ("round trip", facts.round_trip, SLOW_ROUND_TRIP),
    ):
        if seconds > slow:
            text = f"{seconds:.3f} s is slow"
            yield Diagnosis(Level.NOTE, subject, text, "look at the network, and at the load there")
        else:
            yield Diagnosis(Level.OK, subject, f"{seconds * 1e3:.3f} ms")
