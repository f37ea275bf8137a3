"""Tests of one direction: wire forms, the chain, seals, and every violation."""

from typing import Any

import pytest

from parley._crypto.identity import Identity
from parley._crypto.record_protection import StreamKey, seal_mask
from parley._crypto.registry import NAMES, PARAMETERS, Suite
from parley._node.protocol.codes import ALWAYS_SEALED, CONNECTION, SEAL, CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import Event
from parley._node.protocol.record_layer import RecordReader, RecordWriter
from tests.node.protocol.pair import ALICE, events_of
from tests.sweep import sweep

SECRET, CHAIN, COMMIT = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
STRANGER = Identity.create(NAMES["signing"])
every_form = pytest.mark.parametrize(
    ("sealing", "sealed"), [("chain", False), ("chain", True), ("each", True)]
)


def make_suite(**names: str) -> Suite:
    return Suite(**{**{p: NAMES[p][0] for p in PARAMETERS}, "kex": "x25519", **names})


class Line:
    """A writer and its reader."""

    def __init__(self, seal_events: int = 64, signer: Identity = ALICE, **names: str) -> None:
        self.suite = suite = make_suite(**names)
        self.admitted: list[int] = []
        self.sender = RecordWriter(suite, SECRET, CHAIN, COMMIT, signer.key(suite.signing))
        self.receiver = RecordReader(
            suite, SECRET, CHAIN, COMMIT, seal_events, self.admitted.append
        )
        self.receiver.verifier = ALICE.public.verifier(suite.signing)

    def event(
        self,
        stream: int = 1,
        category: int = 64,
        subcategory: int = 1,
        payload: bytes = b"payload",
        sealed: bool = False,
    ) -> bytes:
        (event,) = events_of(self.sender.encrypt(stream, 5, category, subcategory, payload, sealed))
        return event


def refuses(line: Line, event: bytes, code: CloseCode) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        line.receiver.decrypt(event)
    assert caught.value.code == code


# Forms.


@every_form
@sweep("signing", NAMES["signing"])
@sweep("cipher", NAMES["cipher"])
@sweep("hash_name", NAMES["hash"])
def test_an_event_has_its_form_and_opens(
    sealing: str, sealed: bool, signing: str, cipher: str, hash_name: str
) -> None:
    line = Line(sealing=sealing, signing=signing, cipher=cipher, hash=hash_name)
    for number in range(3):
        payload = b"payload %d" % number
        event = line.event(0x01020304, payload=payload, sealed=sealed)
        blob = 4 + len(payload) + 16
        seal = line.suite.signing_algorithm.signature_size if sealed else 0
        prefix = 4 if sealing == "each" else 4 + 1 + 16
        assert len(event) == prefix + seal + blob
        assert event[:4] == bytes.fromhex("01020304")
        if sealing == "chain":
            assert event[4] == int(sealed)
            assert event[5:21] == line.sender.chain[:16]
        opened, seal_of_it = line.receiver.decrypt(event)
        assert opened == Event(0x01020304, 5, 64, 1, payload)
        assert (seal_of_it is not None) == sealed
        assert line.receiver.chain == line.sender.chain
    assert line.admitted == [0x01020304]


def test_each_seals_whatever_was_asked() -> None:
    line = Line(sealing="each")
    assert line.receiver.decrypt(line.event(sealed=False))[1]
    assert line.sender.unsealed == line.receiver.unsealed == 0


def test_the_chain_is_over_stream_and_blob() -> None:
    line = Line()
    event = line.event(7)
    digest = line.suite.hash_algorithm.digest
    assert line.sender.chain == digest(CHAIN + event[:4] + event[21:])


def test_one_seal_vouches_for_all_before_it() -> None:
    line = Line()
    for _ in range(5):
        assert not line.receiver.decrypt(line.event())[1]
    assert line.receiver.unsealed == line.sender.unsealed == 5
    assert line.receiver.decrypt(line.event(sealed=True))[1]
    assert line.receiver.unsealed == line.sender.unsealed == 0


def test_the_signature_is_masked() -> None:
    line = Line()
    event = line.event(sealed=True)
    value, size = line.sender.chain, line.suite.signing_algorithm.signature_size
    seal = event[21 : 21 + size]
    verifier = line.receiver.verifier
    assert verifier is not None
    mask = seal_mask(line.suite.hash_algorithm, COMMIT, value, size)
    verifier.verify(bytes(a ^ b for a, b in zip(seal, mask, strict=True)), b"parley1 seal" + value)


def test_counters_are_per_stream_and_restart_with_each_epoch() -> None:
    line = Line()
    for stream in (1, 3, 1, 1):
        line.receiver.decrypt(line.event(stream))
    for direction in (line.sender, line.receiver):
        assert direction.counters() == {1: 3, 3: 1}
        direction.switch(bytes([9]) * 32)
        assert direction.counters() == {}
        assert direction.epoch == 1
    assert line.sender.events_sent == line.sender.bytes_sent == 0
    line.receiver.decrypt(line.event())
    assert line.sender.counters() == {1: 1}


def test_what_is_sent_is_counted() -> None:
    line = Line()
    line.event(payload=bytes(100))
    line.event(3, payload=bytes(50))
    assert line.sender.events_sent == 2
    assert line.sender.bytes_sent == 150 + 2 * 20


@pytest.mark.pure
def test_no_pair_of_key_and_nonce_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[int, bytes]] = []

    class Spy:
        """Records each nonce with its key."""

        def __init__(self, key: StreamKey, number: int) -> None:
            self.key, self.number = key, number

        def encrypt(self, data: bytes, aad: bytes) -> bytes:
            nonce = (self.key._iv ^ self.key.counter).to_bytes(12, "big")
            used.append((self.number, nonce))
            return self.key.encrypt(data, aad)

    made: list[tuple[bytes, int]] = []

    def make(suite: Suite, secret: bytes, stream: int) -> Spy:
        made.append((secret, stream))
        return Spy(StreamKey(suite, secret, stream), len(made))

    monkeypatch.setattr("parley._node.protocol.record_layer.StreamKey", make)
    line = Line()
    for epoch in range(3):
        for number in range(50):
            line.sender.encrypt(number % 5, 0, 64, 1, b"x", number % 7 == 0)
        line.sender.switch(bytes([epoch + 10]) * 32)
    assert len(used) == 150
    assert len(set(used)) == len(used)
    assert len(set(made)) == len(made)  # no stream key was derived twice


# Violations.


@every_form
def test_every_flipped_bit_is_refused(sealing: str, sealed: bool) -> None:
    size = len(Line(sealing=sealing).event(sealed=sealed))
    for index in range(size):
        line = Line(sealing=sealing)
        event = bytearray(line.event(sealed=sealed))
        event[index] ^= 1 << (index % 8)
        with pytest.raises(RemoteProtocolError) as caught:
            line.receiver.decrypt(bytes(event))
        assert caught.value.code in (CloseCode.BAD_RECORD, CloseCode.SEAL_VIOLATION)
        seal = range(4 if sealing == "each" else 21, size - 27)
        if caught.value.code == CloseCode.SEAL_VIOLATION:
            assert index in seal


@every_form
def test_every_shortened_event_is_refused(sealing: str, sealed: bool) -> None:
    line = Line(sealing=sealing)
    event = line.event(sealed=sealed)
    for size in range(len(event)):
        line = Line(sealing=sealing)
        refuses(line, line.event(sealed=sealed)[:size], CloseCode.BAD_RECORD)


@pytest.mark.parametrize("form", [2, 3, 0x7F, 0xFF])
def test_other_form_bytes(form: int) -> None:
    line = Line()
    event = bytearray(line.event())
    event[4] = form
    refuses(line, bytes(event), CloseCode.BAD_RECORD)


def test_a_seal_that_was_stripped() -> None:
    line = Line()
    event = line.event(sealed=True)
    size = line.suite.signing_algorithm.signature_size
    stripped = event[:4] + b"\x00" + event[5:21] + event[21 + size :]
    refuses(line, stripped, CloseCode.BAD_RECORD)  # the form is part of the associated data


def test_a_seal_that_was_moved() -> None:
    line = Line()
    first, second = line.event(sealed=True), line.event(sealed=True)
    size = line.suite.signing_algorithm.signature_size
    moved = first[:21] + second[21 : 21 + size] + first[21 + size :]
    refuses(line, moved, CloseCode.SEAL_VIOLATION)


def test_reordered_replayed_and_dropped() -> None:
    for order in ((1, 0), (0, 0), (0, 2), (2,)):
        for stream in (1, 3):
            line = Line()
            events = [line.event(), line.event(stream), line.event()]
            *first, last = order
            for number in first:
                refused = number > 0
                if refused:
                    refuses(line, events[number], CloseCode.BAD_RECORD)
                    break
                line.receiver.decrypt(events[number])
            else:
                refuses(line, events[last], CloseCode.BAD_RECORD)


@pytest.mark.parametrize("sealing", NAMES["sealing"])
def test_an_event_moved_to_another_stream(sealing: str) -> None:
    line = Line(sealing=sealing)
    event = line.event(1)
    refuses(line, b"\x00\x00\x00\x03" + event[4:], CloseCode.BAD_RECORD)


def test_another_key_chain_or_commitment() -> None:
    for changed, code in (
        ("secret", CloseCode.BAD_RECORD),
        ("chain", CloseCode.BAD_RECORD),
        ("commit", CloseCode.SEAL_VIOLATION),
    ):
        line = Line()
        if changed == "secret":
            line.receiver.switch(bytes([9]) * 32)
        elif changed == "chain":
            line.receiver.chain = bytes(32)
        else:
            line.receiver.commit = bytes(32)
        refuses(line, line.event(sealed=True), code)


@pytest.mark.parametrize("signing", NAMES["signing"])
@pytest.mark.parametrize("sealing", NAMES["sealing"])
def test_a_foreign_seal(signing: str, sealing: str) -> None:
    line = Line(signing=signing, sealing=sealing, signer=STRANGER)
    refuses(line, line.event(sealed=True), CloseCode.SEAL_VIOLATION)


def test_more_than_seal_events_unsealed() -> None:
    for limit in (1, 5):
        line = Line(seal_events=limit)
        for _ in range(limit):
            line.receiver.decrypt(line.event())
        refuses(line, line.event(), CloseCode.SEAL_VIOLATION)


def test_a_seal_begins_the_count_again() -> None:
    line = Line(seal_events=2)
    for _ in range(5):
        line.receiver.decrypt(line.event())
        line.receiver.decrypt(line.event())
        line.receiver.decrypt(line.event(sealed=True))


@pytest.mark.parametrize("subcategory", sorted(ALWAYS_SEALED))
def test_the_six_events_are_refused_without_seal(subcategory: int) -> None:
    line = Line()
    refuses(line, line.event(0, CONNECTION, subcategory), CloseCode.SEAL_VIOLATION)
    assert SEAL in ALWAYS_SEALED
    assert len(ALWAYS_SEALED) == 6


@pytest.mark.parametrize(("category", "subcategory"), [(0, 1), (1, 0), (0, 0)])
def test_type_0(category: int, subcategory: int) -> None:
    for sealed in (False, True):
        line = Line()
        event = line.event(category=category, subcategory=subcategory, sealed=sealed)
        refuses(line, event, CloseCode.PROTOCOL_ERROR)


def test_a_stream_that_is_not_admitted_gets_no_key() -> None:
    line = Line()

    def admit(stream: int) -> None:
        raise RemoteProtocolError(CloseCode.PROTOCOL_ERROR, f"not {stream}")

    line.receiver.admit = admit
    refuses(line, line.event(9), CloseCode.PROTOCOL_ERROR)
    assert line.receiver.counters() == {}


def test_a_forgotten_stream_is_asked_for_again() -> None:
    line = Line()
    line.receiver.decrypt(line.event(3))
    line.receiver.forget(3)
    line.sender.forget(3)
    line.receiver.forget(99)
    assert line.receiver.counters() == line.sender.counters() == {}
    line.receiver.decrypt(line.event(3))
    assert line.admitted == [3, 3]


def test_without_a_verifier_no_seal_passes() -> None:
    line = Line()
    line.receiver.verifier = None
    refuses(line, line.event(sealed=True), CloseCode.INTERNAL_ERROR)


def test_no_secret_in_a_repr() -> None:
    line = Line()
    shown: list[Any] = [line.sender, line.receiver]
    for thing in shown:
        assert SECRET.hex() not in repr(thing)
        assert repr(SECRET) not in repr(thing)
        assert repr(COMMIT) not in repr(thing)
