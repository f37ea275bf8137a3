"""Row 6. Mistake: a negotiation that the signatures do not cover.

Promise: whatever a middle node does to the handshake, neither side identifies the other on the
basis of anything that the other did not send. No application is reached, and both sides end by
their deadlines.

A bit is flipped in every byte of every event of every kind of handshake; in long events only in
some bytes, which the seed of the run chooses. Each event is also cut, lengthened, lost, repeated,
reordered, reflected, replaced and changed in content. `Middle` checks each time:

- A side identifies the other only if both have received the sent bytes unchanged until then. A
  change in Hello, Retry, Reply or the responder's Proof keeps the initiator from sending its Proof,
  and any change keeps the responder from opening.
- The initiator is done once its Proof is sent. If that Proof is tampered with, the initiator stays
  open until the other side ends, or until its own keep-alive ends the connection.
- Bytes appended to the last event of a direction break that direction when they are read.
- The middle node never reports the end of a transport; both sides depend on their own clocks.

`--every-bit` tries all eight bits, and cuts, at all positions of all suites. Single faults:
tests/handshake.
"""

from collections.abc import Iterable, Iterator

import pytest

from parley._lbm import keys
from parley._lbm.codec import Value
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.limits import (
    CLOSE_LINGER,
    FRAME_HEADER_SIZE,
    HANDSHAKE_EVENT_SIZE,
    REKEY_TIMEOUT,
)
from tests.security import changed_bytes, tampering
from tests.security.changed_bytes import at, doing, silence_after
from tests.security.middle import LATER, Instead, Middle, Passing, Tamper
from tests.security.shapes import (
    FROM_INITIATOR,
    HELLO,
    INITIATORS_PROOF,
    SECOND_HELLO,
    SHAPES,
    Shape,
)
from tests.sweep import sweep

pytestmark = pytest.mark.timeout(3600 if changed_bytes.FULL else 60)

every_event = sweep(
    ("shape", "name"),
    [
        pytest.param(shape, name, id=f"{shape.name}-{name}".replace(" ", "_"))
        for shape in SHAPES.values()
        for name in shape.events
    ],
    parts=6,
)
every_shape = sweep("shape", SHAPES.values(), ids=lambda shape: shape.name)


def meet(shape: Shape, tamper: Tamper, *, apart: bool = False, any_code: bool = False) -> Middle:
    """Run one handshake under a fault, to the end of all deadlines."""
    middle = Middle(shape, tamper, apart=apart)
    middle.conclude()
    assert middle.touched
    middle.assert_refused(any_code=any_code)
    return middle


def assert_each_refused(
    shape: Shape, name: str, tampers: Iterable[tuple[str, Tamper]], *, least: int
) -> None:
    """Check that each of these changes of an event is refused."""
    count = 0
    for what, tamper in tampers:
        with doing(f"{name}: {what}"):
            middle = meet(shape, tamper)
            assert not middle.b.opened
            assert middle.a.opened == (name == INITIATORS_PROOF)
            if shape.settings and name == HELLO:
                assert not middle.b.wire, "a network answered who did not know its key"
            count += 1
    assert count >= least


@every_shape
def test_without_a_fault_they_talk(shape: Shape) -> None:
    """Without a fault the two communicate; otherwise the following tests would be meaningless."""
    for apart in (False, True):
        middle = Middle(shape, apart=apart)
        middle.pump()
        assert middle.b.payloads == [b"from the application"]
        assert middle.a.payloads == [b"an answer"]


@every_event
def test_a_flipped_bit(shape: Shape, name: str) -> None:
    least = len(changed_bytes.flipped(shape, name))
    assert_each_refused(shape, name, changed_bytes.flips(shape, name), least=least)


@every_event
def test_fewer_bytes(shape: Shape, name: str) -> None:
    least = len(changed_bytes.places(shape, name))
    assert_each_refused(shape, name, changed_bytes.shorter(shape, name), least=least)


@every_event
def test_more_bytes(shape: Shape, name: str) -> None:
    least = len(changed_bytes.places(shape, name))

    def changed(behind: bool) -> Iterator[tuple[str, Tamper]]:
        for what, tamper in changed_bytes.longer(shape, name):
            if ("behind" in what) == behind:
                yield what, tamper

    assert_each_refused(shape, name, changed(behind=False), least=least)
    # The event itself is unchanged: its receiver may continue, and then reads the rest.
    for what, tamper in changed(behind=True):
        with doing(f"{name}: {what}"):
            meet(shape, tamper)


@every_event
def test_a_lost_event(shape: Shape, name: str) -> None:
    assert_each_refused(shape, name, tampering.lost(name), least=2)


@every_event
def test_a_repeated_event(shape: Shape, name: str) -> None:
    """Each side gets an unchanged copy first, so that it may open; it does not stay open."""
    count = 0
    for what, tamper in tampering.repeated(shape, name):
        for apart in (False, True):
            with doing(f"{name} {what}"):
                meet(shape, tamper, apart=apart)
                count += 1
    assert count >= 4


@every_event
def test_reordered_events(shape: Shape, name: str) -> None:
    assert_each_refused(shape, name, tampering.reordered(shape, name), least=1)


@every_event
def test_a_reflected_event(shape: Shape, name: str) -> None:
    for what, tamper in tampering.reflected(name):
        with doing(f"{name} {what}"):
            meet(shape, tamper)


@every_event
def test_unknown_events_between(shape: Shape, name: str) -> None:
    for what, tamper in tampering.inserted(shape, name, tampering.UNKNOWN):
        with doing(f"{name}: {what}"):
            meet(shape, tamper)
    for what, tamper in tampering.inserted(shape, name, tampering.REJECTS):
        with doing(f"{name}: {what}"):
            meet(shape, tamper, any_code=True)


@every_event
def test_a_length_without_a_frame(shape: Shape, name: str) -> None:
    """A length without a frame ends the connection.

    During the handshake it is too long. After a Proof it is valid and swallows the following bytes,
    each of which counts as a sign of life; the next rekey ends the connection, because it gets no
    answer.
    """
    length = (HANDSHAKE_EVENT_SIZE + 1).to_bytes(FRAME_HEADER_SIZE, "big")
    for change in (lambda data: length + data, lambda _: length):
        assert_each_refused(shape, name, [("a length", at(name, change))], least=1)
    middle = Middle(shape, at(name, lambda data: data + length))
    middle.conclude()
    if name.endswith("Proof"):
        middle.run(middle.a.core.config.rekey_interval + REKEY_TIMEOUT + CLOSE_LINGER)
    middle.assert_refused()


@every_event
def test_events_of_other_sessions_between(shape: Shape, name: str) -> None:
    others = tampering.foreign(shape)
    assert len(others) == 3 * len(shape.events)
    for what, tamper in tampering.inserted(shape, name, others):
        with doing(f"{name}: {what}"):
            meet(shape, tamper)


@every_event
def test_a_reworded_event(shape: Shape, name: str) -> None:
    """The changed events are well formed, but have other content, or additional meaningless
    bytes.
    """
    encrypted = name.endswith("Proof")
    tampers = list(tampering.reworded(shape, name))
    assert_each_refused(shape, name, tampers, least=0 if encrypted else 10)


@every_shape
def test_both_sides_told_the_same_lie(shape: Shape) -> None:
    lies: dict[str, dict[int, Value]] = {
        "noise": {keys.NOISE: b"x"},
        "seals once in 65,536 events": {keys.SEAL_EVENTS: 65_536, keys.SEAL_DELAY_MS: 60_000},
        "roles": {keys.ROLE: "client"},
        "the same random": {keys.RANDOM: bytes(32)},
    }
    for what, cells in lies.items():
        with doing(what):
            middle = meet(shape, tampering.in_both(cells))
            assert not middle.a.opened
            assert not middle.b.opened


@every_shape
def test_two_meetings_crossed(shape: Shape) -> None:
    """The first flight of one initiator goes to another's responder: honest events to wrong
    partners.
    """
    other = Middle(shape, silence_after(HELLO, 1 << 20))
    stranger = other.a.take(other.now)
    middle = meet(shape, at(HELLO, lambda _: stranger))
    assert not middle.a.opened
    assert not middle.b.opened


@pytest.mark.parametrize("name", [HELLO, SECOND_HELLO])
def test_a_network_says_nothing_more_to_who_changes_a_hello(name: str) -> None:
    """Row 6 in a private network: the mac of each Hello, including its noise, is checked."""
    shape = SHAPES["retry in a network"]
    for what, tamper in tampering.reworded(shape, name):
        with doing(what):
            middle = meet(shape, tamper)
            if name == HELLO:
                assert not middle.b.wire
            else:
                assert len(middle.b.wire) == shape.sizes()["Retry"]
            assert middle.b.code == CloseCode.AUTHENTICATION_FAILED


@every_shape
def test_a_silent_middle_is_met_by_both_clocks(shape: Shape) -> None:
    """After each event, both directions are blocked: both sides end at their
    deadlines.
    """
    for name in shape.events:
        with doing(f"silence after {name}"):
            middle = meet(shape, silence_after(name, 1 << 20))
            for side in middle.sides:
                assert side.code == CloseCode.TIMEOUT
            assert middle.b.opened == (name == INITIATORS_PROOF)


def test_the_middle_sees_what_it_should() -> None:
    """Check the names, order and directions of the events, on which the sweep depends."""
    for shape in SHAPES.values():
        names: list[str] = []

        def look(passing: Passing, seen: list[str] = names) -> Instead:
            seen.append(passing.name)
            return Instead(passing.frame)

        Middle(shape, look).pump()
        assert names[: len(shape.events)] == list(shape.events)
        assert set(names[len(shape.events) :]) == {LATER}
        assert set(shape.sizes()) >= FROM_INITIATOR - {SECOND_HELLO}
