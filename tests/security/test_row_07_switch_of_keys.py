"""Row 7. Mistake: counters that continue across the switch to encryption, so that events injected
before it hide events dropped after it.

Promise: this holds at every switch of keys (to the handshake's, to epoch 0, at a KeyUpdate, at a
rekey), in both directions. Events injected, dropped, repeated or exchanged around the switch are
refused. Counters begin at 0 under every key, whatever came before.

A single change in a handshake: row 6. Key updates under load: row 21.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from parley._crypto.registry import NAMES
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.frames import frame
from tests.node.protocol.pair import (
    ALICE,
    ALIVE,
    BOB,
    FAST,
    Pair,
    Side,
    events_of,
    make_config,
    raw_frame,
)
from tests.reference.primitives import nonce_for
from tests.reference.sealing import stream_key
from tests.security.eavesdropper import Tape
from tests.security.exchanges import veiled
from tests.security.recording import recorded_aead
from tests.security.shapes import SHAPES, Shape

REFUSED: Final = frozenset(
    {
        CloseCode.BAD_RECORD,
        CloseCode.PROTOCOL_ERROR,
        CloseCode.SEAL_VIOLATION,
        CloseCode.AUTHENTICATION_FAILED,
    }
)
# Events that a protocol might ignore: empty ones, keep-alive, seals, unknown types, padding.
IGNORABLE: Final = {
    "Ping": raw_frame(6, {}),
    "Pong": raw_frame(7, {}),
    "Seal": raw_frame(8, {}),
    "an unknown event": raw_frame(13, {}),
    "noise": raw_frame(255, {0: bytes(100)}),
    "an event on stream 1": raw_frame(6, {}, stream=1),
    "an empty event": frame(b""),
    "zeros": frame(bytes(64)),
}


@dataclass
class Scene:
    """The undelivered frames of one side around a switch of its keys.

    `switch` is the index of the first frame under the new keys.
    """

    pair: Pair
    sender: Side
    frames: list[bytes]
    switch: int

    @property
    def receiver(self) -> Side:
        return self.pair.other(self.sender)

    def deliver(self, frames: list[bytes]) -> None:
        """Deliver the changed frames, followed by one honest event."""
        self.pair.deliver(self.receiver, b"".join(frames))
        for side in (self.receiver, self.sender):
            side.collect(self.pair.now)
        self.pair.deliver(self.receiver, b"".join(sending(self.sender, self.pair, "last")))

    def assert_refused(self, what: str) -> None:
        """Check that the receiver ended, and reported only the events before the change."""
        assert self.receiver.code in REFUSED, what
        told = [payload.decode() for payload in self.receiver.payloads]
        assert told == SPOKEN[: len(told)], what
        assert "last" not in told, what


SPOKEN: Final = ["one", "two", "three", "four", "five", "six", "last"]


def sending(side: Side, pair: Pair, *words: str) -> list[bytes]:
    """Return frames of one word each, on stream 1; empty if the side cannot send any longer."""
    if side.state != "OPEN":
        return []
    frames = []
    for word in words:
        side.core.send(1, 0, 64, 1, word.encode(), lbm=False)
        frames += [frame(event) for event in events_of(side.take(pair.now))]
    return frames


def taken(side: Side, pair: Pair) -> list[bytes]:
    """Return the frames that a side sends on its own."""
    return [frame(event) for event in events_of(side.take(pair.now))]


def new_pair(sealing: str) -> Pair:
    """Return two cores that have not exchanged any event."""
    names = {**FAST, "sealing": (sealing,)}
    a, b = (make_config(end, algorithms=names, rekey_allowance=9) for end in (ALICE, BOB))
    return Pair(a, b)


def handshakes_keys(sealing: str) -> Scene:
    """The responder's Reply is raw, and its Proof is under the handshake's keys."""
    pair = new_pair(sealing)
    pair.carry(pair.a)
    return Scene(pair, pair.b, taken(pair.b, pair), 1)


def initiators_handshake_keys(sealing: str) -> Scene:
    """The initiator's Hello is raw, and its Proof is under the handshake's keys.

    In between it waits for the responder's flight, which the middle node does not change.
    """
    pair = new_pair(sealing)
    hello = taken(pair.a, pair)
    pair.deliver(pair.b, b"".join(hello))
    pair.carry(pair.b)
    # The Hello was already delivered, so the frame before the Proof repeats it.
    return Scene(pair, pair.a, [*taken(pair.a, pair), *sending(pair.a, pair, *SPOKEN[:3])], 0)


def epoch_0_of_the_initiator(sealing: str) -> Scene:
    """The initiator's Proof, and data under epoch 0."""
    scene = initiators_handshake_keys(sealing)
    scene.switch = 1
    return scene


def epoch_0_of_the_responder(sealing: str) -> Scene:
    """The responder's Proof was delivered; these are its first events after it."""
    pair = new_pair(sealing)
    pair.pump()
    return Scene(pair, pair.b, sending(pair.b, pair, *SPOKEN[:3]), 0)


def key_update(by_initiator: bool) -> Callable[[str], Scene]:
    """Three words, KeyUpdate, three words."""

    def scene(sealing: str) -> Scene:
        pair = new_pair(sealing)
        pair.pump()
        side = pair.a if by_initiator else pair.b
        frames = sending(side, pair, *SPOKEN[:3])
        side.core.update_keys(pair.now)
        frames += taken(side, pair)
        assert len(frames) == 4
        return Scene(pair, side, frames + sending(side, pair, *SPOKEN[3:6]), 4)

    return scene


def rekey(by_initiator: bool, answered: bool) -> Callable[[str], Scene]:
    """Three words, the KeyUpdate of a rekey (after RekeyAnswer if `answered`), three words."""

    def scene(sealing: str) -> Scene:
        pair = new_pair(sealing)
        pair.pump()
        side = pair.a if by_initiator else pair.b
        other = pair.other(side)
        offerer = other if answered else side
        offerer.core.rekey(pair.now)
        pair.carry(offerer)
        frames = sending(side, pair, *SPOKEN[:3]) if answered else []
        if not answered:
            # The other side's answer waits until the words have been sent.
            answer = other.take(pair.now)
            frames = sending(side, pair, *SPOKEN[:3])
            pair.deliver(side, answer)
        frames += taken(side, pair)
        switch = len(frames)
        return Scene(pair, side, frames + sending(side, pair, *SPOKEN[3:6]), switch)

    return scene


SCENES: Final[dict[str, Callable[[str], Scene]]] = {
    "the handshake's keys, responder": handshakes_keys,
    "the handshake's keys, initiator": initiators_handshake_keys,
    "epoch 0, initiator": epoch_0_of_the_initiator,
    "epoch 0, responder": epoch_0_of_the_responder,
    "key update, initiator": key_update(True),
    "key update, responder": key_update(False),
    "rekey answered by the initiator": rekey(True, answered=True),
    "rekey answered by the responder": rekey(False, answered=True),
    "rekey offered by the initiator": rekey(True, answered=False),
    "rekey offered by the responder": rekey(False, answered=False),
}

each_scene = pytest.mark.parametrize("name", SCENES)
each_sealing = pytest.mark.parametrize("sealing", NAMES["sealing"])

Change = tuple[str, list[bytes]]


def dropped(frames: list[bytes], switch: int) -> Iterator[Change]:
    """Drop one to three events, starting anywhere near the switch."""
    for first in range(max(0, switch - 2), min(len(frames), switch + 2)):
        for count in (1, 2, 3):
            if first + count <= len(frames):
                yield f"{count} from {first} dropped", frames[:first] + frames[first + count :]


def injected(frames: list[bytes], switch: int) -> Iterator[Change]:
    """Inject events anywhere near the switch."""
    for place in range(max(0, switch - 2), min(len(frames), switch + 2)):
        for what, extra in IGNORABLE.items():
            yield f"{what} injected at {place}", [*frames[:place], extra, *frames[place:]]


def repeated(frames: list[bytes], switch: int) -> Iterator[Change]:
    """Repeat earlier events after the switch and later ones before it, and exchange them."""
    for old in range(max(0, switch - 3), min(len(frames), switch + 2)):
        for place in range(max(old + 1, switch - 1), min(len(frames), switch + 2)):
            yield f"{old} again at {place}", [*frames[:place], frames[old], *frames[place:]]
        if old + 1 < len(frames):
            swapped = [*frames[:old], frames[old + 1], frames[old], *frames[old + 2 :]]
            yield f"{old} and the next exchanged", swapped


def injected_and_dropped(frames: list[bytes], switch: int) -> Iterator[Change]:
    """Inject as many events before the switch as are dropped after it, as in the Terrapin
    attack.
    """
    for what, extra in IGNORABLE.items():
        for count in (1, 2):
            for first in range(switch, min(len(frames) - count, switch + 2) + 1):
                kept = frames[:first] + frames[first + count :]
                for place in range(max(0, switch - 2), switch + 1):
                    name = f"{count} of {what} injected at {place}, as many dropped from {first}"
                    yield name, kept[:place] + [extra] * count + kept[place:]


@each_scene
@each_sealing
def test_undisturbed_all_is_heard(sealing: str, name: str) -> None:
    scene = SCENES[name](sealing)
    words = {"the": 0, "epo": 3, "key": 6, "rek": 6}[name[:3]]
    if name == "the handshake's keys, initiator":
        words = 3
    scene.deliver(scene.frames)
    assert scene.receiver.code == ALIVE
    assert scene.receiver.state == "OPEN"
    last = ["last"] if scene.sender.state == "OPEN" else []
    assert [payload.decode() for payload in scene.receiver.payloads] == SPOKEN[:words] + last


@each_scene
@each_sealing
@pytest.mark.parametrize(
    "changes", [dropped, injected, repeated, injected_and_dropped], ids=lambda c: c.__name__
)
def test_nothing_passes_around_a_switch_of_keys(
    changes: Callable[[list[bytes], int], Iterator[Change]], sealing: str, name: str
) -> None:
    plan = SCENES[name](sealing)
    for number, (what, _) in enumerate(changes(plan.frames, plan.switch)):
        scene = SCENES[name](sealing)
        assert (len(scene.frames), scene.switch) == (len(plan.frames), plan.switch)
        _, changed = list(changes(scene.frames, scene.switch))[number]
        scene.deliver(changed)
        if scene.receiver.code != ALIVE:
            scene.assert_refused(what)
            continue
        # Half a handshake, which the sender never completes: the deadline ends it.
        assert name == "the handshake's keys, responder", what
        scene.pair.run(scene.receiver.core.config.handshake_timeout)
        assert scene.receiver.code == CloseCode.TIMEOUT, what
        assert not scene.receiver.opened, what


# Counters.


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_counters_begin_at_0_under_every_key(shape: Shape) -> None:
    """Counters start at 0, however many events came before.

    With a Retry there are twice as many raw events; the length of the last epoch varies.
    """
    tape = Tape()
    with recorded_aead() as record:
        pair = Pair(
            shape.config("initiator", rekey_allowance=9),
            shape.config("responder", rekey_allowance=9),
            observers=(tape, None),
        )
        pair.pump()
        streams = [side.core.open_stream("x") for side in pair.sides]
        for number in range(4):
            for side, stream in zip(pair.sides, streams, strict=True):
                for _ in range(number + 1):
                    side.core.send_data(stream, b"x")
                    side.core.send(1, 0, 64, 1, b"x", lbm=False)
                pair.pump()
                side.core.update_keys(pair.now)
            pair.pump()
            if number == 2:
                pair.b.core.rekey(pair.now)
                pair.pump()
    suite = tape.suite
    ivs = {
        key: iv
        for hidden in tape.secrets.values()
        for stream in (0, 1, *streams)
        for key, iv in [stream_key(suite, veiled(hidden), stream)]
    }
    written = [made for made in record.objects if made.encrypted]
    assert len(tape.secrets) == 2 * 6
    assert len([made for made in written if made.key not in ivs]) == 2  # the two Proofs
    for made in written:
        if made.key in ivs:
            counted = [nonce_for(ivs[made.key], n) for n in range(len(made.encrypted))]
            assert made.encrypted == counted
            assert made.key in {read.key for read in record.objects if read.decrypted == counted}
        else:
            assert len(made.encrypted) == 1
