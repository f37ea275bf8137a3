"""Each weakness of a connection, from the facts that show it."""

from dataclasses import replace

import pytest

from parley._crypto.registry import Suite
from parley._node.cli.doctor.command import Facts, weaknesses
from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.protocol.limits import Limits

BEST = Suite("x25519-mlkem768", "ml-dsa-65", "sha256", "aes-256-gcm", "each")
STRONG = Facts(
    suite=BEST,
    trust="first-use",
    pinned=True,
    limits=Limits(),
    own_identity=True,
    handshake=0.01,
    round_trip=0.001,
)


def of(facts: Facts, subject: str) -> Diagnosis:
    (found,) = (f for f in weaknesses(facts) if f.subject == subject)
    return found


def test_nothing_is_weak() -> None:
    found = list(weaknesses(STRONG))
    assert {f.level for f in found} == {Level.OK}
    assert {f.mend for f in found} == {""}
    assert [f.subject for f in found] == [
        "encryption",
        "kex",
        "signing",
        "sealing",
        "trust",
        "handshake",
        "round trip",
    ]


@pytest.mark.parametrize(
    ("facts", "subject", "level", "said"),
    [
        (replace(STRONG, suite=None), "encryption", Level.WEAK, "read and change all traffic"),
        (replace(STRONG, suite=replace(BEST, kex="x25519")), "kex", Level.WEAK, "quantum"),
        (replace(STRONG, suite=replace(BEST, signing="ed25519")), "signing", Level.NOTE, "quantum"),
        (
            replace(STRONG, suite=replace(BEST, signing="ecdsa-p256")),
            "signing",
            Level.NOTE,
            "ecdsa-p256",
        ),
        (
            replace(STRONG, pinned=False, trust="any"),
            "trust",
            Level.WEAK,
            "any node that answers",
        ),
        (replace(STRONG, pinned=False), "trust", Level.NOTE, "not checked at the first connection"),
        (
            replace(STRONG, own_identity=False),
            "identity",
            Level.NOTE,
            "will not recognise this node",
        ),
        (replace(STRONG, handshake=3.5), "handshake", Level.NOTE, "3.500 s is slow"),
        (replace(STRONG, round_trip=0.6), "round trip", Level.NOTE, "0.600 s is slow"),
    ],
)
def test_each_weakness(facts: Facts, subject: str, level: Level, said: str) -> None:
    found = of(facts, subject)
    assert found.level is level
    assert said in found.text
    assert found.mend
    assert [f for f in weaknesses(facts) if f.level is not Level.OK] == [found]


def test_without_encryption_nothing_is_said_of_algorithms() -> None:
    found = weaknesses(replace(STRONG, suite=None, trust="any", pinned=False))
    assert [f.subject for f in found] == ["encryption", "handshake", "round trip"]


def test_a_peer_on_record_needs_no_pin() -> None:
    assert of(replace(STRONG, pinned=False, trust="known"), "trust").level is Level.OK


@pytest.mark.parametrize(
    ("limits", "level"),
    [
        (Limits(), Level.OK),
        (Limits(seal_delay_ms=0, seal_events=1), Level.OK),
        (Limits(seal_delay_ms=21), Level.NOTE),
        (Limits(seal_events=65), Level.NOTE),
    ],
)
def test_seals_that_are_rare(limits: Limits, level: Level) -> None:
    facts = replace(STRONG, suite=replace(BEST, sealing="chain"), limits=limits)
    found = of(facts, "sealing")
    assert found.level is level
    assert f"at most {limits.seal_events:,} events" in found.text
    # Signed one by one, it does not matter how many wait for a seal.
    assert of(replace(facts, suite=BEST), "sealing").level is Level.OK
