"""Row 1. Mistake: one key for both directions, or a nonce used twice under a key.

Promise: over many connections, streams, key updates and rekeys, no (key, nonce) encrypts twice, and
no key serves two directions, streams or epochs.

The same for a single direction:
tests/node/protocol/test_record_layer.py::test_no_pair_of_key_and_nonce_twice. No nonce follows the
last one: tests/crypto/test_record_protection.py.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from parley._crypto.registry import NAMES
from parley._lbm.codec import encode
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import KeysUpdated
from tests.node.protocol.pair import ALICE, BOB, FAST, Pair, Side, events_of, make_config
from tests.security.recording import AeadRecord, recorded_aead

HYBRID_FIRST = ("x25519-mlkem768", "x25519")
HELLO_OR_REPLY = 1  # raw events that each side of an honest handshake sends


@pytest.fixture
def record() -> Iterator[AeadRecord]:
    with recorded_aead() as record:
        yield record


def settings(cipher: str, sealing: str, **more: Any) -> dict[str, Any]:
    """Return settings with one cipher and one sealing, and small limits, so that keys change
    often.
    """
    names = {**FAST, "cipher": (cipher,), "sealing": (sealing,)}
    return {
        "algorithms": names,
        "update_after_events": 15,
        "update_after_bytes": 2_000,
        "rekey_allowance": 1_000,
        "seal_events": 5,
        **more,
    }


def talk(pair: Pair, side: Side, number: int) -> None:
    """Open, use and end streams in every way, with sealed and unsealed events."""
    core = side.core
    streams = [core.open_stream(f"stream {number}.{index}") for index in range(4)]
    for index, stream in enumerate(streams):
        for size in (1, 50, 500)[: index + 1]:
            core.send_data(stream, bytes(size))
        core.send(1, index, 64, 1, encode({300: number}), seal=index % 2 == 0)
        core.send(stream, 0, 64, 2, b"own format", lbm=False, seal=index == 3)
    core.ping(pair.now)
    pair.pump()  # a reset would drop queued data
    core.finish_stream(streams[0])
    core.finish_stream(streams[1])
    core.reset_stream(streams[2], CloseCode.CANCELLED)


def answer_streams(pair: Pair) -> None:
    """End each stream that the other side has finished."""
    for side in pair.sides:
        for stream in sorted({event.stream for event in side.events}):
            if stream > 1 and stream % 2 == (side is pair.b):
                side.core.reset_stream(stream, CloseCode.CANCELLED)


def converse(pair: Pair, rounds: int = 6) -> None:
    """Do everything that creates a key, a counter or an epoch, from both sides."""
    pair.pump()
    assert pair.a.opened
    assert pair.b.opened
    for number in range(rounds):
        for side in pair.sides:
            talk(pair, side, number)
        match number:
            case 1:
                pair.a.core.update_keys(pair.now)
                pair.pump()
                pair.b.core.update_keys(pair.now)
                pair.b.core.update_keys(pair.now)  # an epoch of one event
            case 2:
                pair.a.core.rekey(pair.now)
            case 3:
                pair.b.core.rekey(pair.now)
                pair.b.core.update_keys(pair.now)
            case 4:  # crossing offers, with a plain update among them
                for side in pair.sides:
                    side.core.rekey(pair.now)
                    side.core.update_keys(pair.now)
        pair.pump()
        answer_streams(pair)
        pair.run(1.0)
    pair.a.core.close(pair.now, 64, "enough")
    pair.pump()
    assert pair.a.code == pair.b.code == 64


def assert_all_is_recorded(record: AeadRecord, pairs: list[Pair], raw: int) -> None:
    """Check that there is exactly one encryption for each encrypted event on the wire."""
    events = sum(len(events_of(side.wire)) for pair in pairs for side in pair.sides)
    assert len(record.encryptions) == events - raw
    assert set(record.decryptions) <= set(record.encryptions)


@pytest.mark.parametrize("sealing", NAMES["sealing"])
@pytest.mark.parametrize("cipher", NAMES["cipher"])
def test_nothing_twice_over_connections_streams_updates_and_rekeys(
    cipher: str, sealing: str, record: AeadRecord
) -> None:
    pairs = []
    for number in range(6):
        more: dict[str, Any] = {"network_key": bytes([7]) * 32} if number % 2 else {}
        ends = (ALICE, BOB) if number % 3 else (BOB, ALICE)
        a, b = (make_config(end, **settings(cipher, sealing, **more)) for end in ends)
        pair = Pair(a, b)
        converse(pair)
        pairs.append(pair)
        for side in pair.sides:
            epochs = [r.epoch for r in side.all(KeysUpdated) if r.sent]
            assert epochs == list(range(1, len(epochs) + 1))
            assert len(epochs) > 10  # by events, by bytes, on request, by rekeys
            assert max(r.rekey for r in side.all(KeysUpdated)) == 3
    assert_all_is_recorded(record, pairs, raw=2 * HELLO_OR_REPLY * len(pairs))
    # Everything has arrived, so each key has exactly one reader.
    assert set(record.decryptions) == set(record.encryptions)
    assert {made.cipher for made in record.objects} == {cipher}
    record.assert_no_key_is_shared()


@pytest.mark.parametrize("cipher", NAMES["cipher"])
def test_nothing_twice_when_handshakes_take_other_ways(cipher: str, record: AeadRecord) -> None:
    """Retry, a rejected peer and its Close, a foreign Proof, an abort, a lost transport."""
    names = {"cipher": (cipher,)}
    retried = Pair(
        make_config(ALICE, algorithms={**names, "kex": HYBRID_FIRST}),
        make_config(BOB, algorithms={**names, **FAST}),
    )
    refusing = [
        Pair(make_config(ALICE, algorithms={**names, **FAST}), make_config(BOB, algorithms=names))
        for _ in range(4)
    ]
    refusing[0].b.answer = False
    refusing[1].a.answer = False
    refusing[2].b.answer = None
    pairs = [retried, *refusing]
    for pair in pairs:
        pair.pump()
        pair.b.core.abort(pair.now, CloseCode.OVERLOADED, "this test")
        pair.pump()
        pair.a.core.receive_eof(pair.now)
        pair.b.core.receive_eof(pair.now)
    assert_all_is_recorded(record, pairs, raw=2 * len(pairs) + 2)
    record.assert_no_key_is_shared()


def test_an_event_that_does_not_open_costs_the_sender_no_nonce_twice(record: AeadRecord) -> None:
    """After a violation, only the Close is still encrypted, under its own nonce."""
    for place in (-1, 4, 30):
        pair = Pair(make_config(ALICE), make_config(BOB))
        pair.pump()
        pair.a.core.send(1, 0, 64, 1, b"data", lbm=False)
        changed = bytearray(pair.a.take(pair.now))
        changed[place] ^= 1
        pair.deliver(pair.b, bytes(changed))
        pair.pump()
        assert pair.b.code == CloseCode.BAD_RECORD
        assert pair.a.code == CloseCode.BAD_RECORD
    record.assert_no_key_is_shared()


def test_an_unencrypted_connection_uses_no_key(record: AeadRecord) -> None:
    pair = Pair(make_config(ALICE, plaintext="only"), make_config(BOB, plaintext="only"))
    pair.pump()
    pair.a.core.send(1, 0, 64, 1, b"data", lbm=False)
    pair.pump()
    assert pair.b.payloads == [b"data"]
    assert record.objects == []
