"""Tests of rekeys: keys of both directions, crossing offers, and every wrong step."""

from typing import Any

import pytest

from parley._crypto.registry import KEX, PARAMETERS, Suite
from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._node.protocol.codes import KEY_UPDATE, REKEY_ANSWER, REKEY_OFFER, CloseCode
from parley._node.protocol.errors import LimitReachedError, LocalProtocolError, RemoteProtocolError
from parley._node.protocol.rekey import Phase, RekeyState
from parley._node.protocol.reports import KeysUpdated
from tests.node.protocol.pair import ALIVE, Pair, Side, assert_ended, assert_violation, open_pair

KEX_NAME = "x25519"
SUITE = Suite(KEX_NAME, "ed25519", "sha256", "aes-256-gcm", "chain")


def share() -> bytes:
    return KEX[KEX_NAME].generate().share


def answer() -> bytes:
    return KEX[KEX_NAME].respond(share())[0]


def secrets(side: Side) -> tuple[bytes, bytes]:
    return side.channel.sender.secret, side.channel.receiver.secret


def assert_in_step(pair: Pair) -> None:
    """Check that keys, chains and epochs are equal, and that data flows in both directions."""
    a, b = pair.a.channel, pair.b.channel
    for sender, receiver in ((a.sender, b.receiver), (b.sender, a.receiver)):
        assert sender.secret == receiver.secret
        assert sender.chain == receiver.chain
        assert sender.epoch == receiver.epoch
    pair.a.core.send(1, 0, 64, 1, b"to b", lbm=False)
    pair.b.core.send(1, 0, 64, 1, b"to a", lbm=False)
    pair.pump()
    assert pair.b.payloads[-1] == b"to b"
    assert pair.a.payloads[-1] == b"to a"
    assert pair.a.code == pair.b.code == ALIVE


def test_the_parameters_are_all_there() -> None:
    assert set(SUITE.names()) == set(PARAMETERS)


@pytest.mark.parametrize("who", ["initiator", "responder"])
def test_a_rekey_changes_the_keys_of_both_directions(who: str) -> None:
    pair = open_pair()
    before = secrets(pair.a)
    (pair.a if who == "initiator" else pair.b).core.rekey(pair.now)
    pair.pump()
    assert len({*before, *secrets(pair.a)}) == 4
    for side in pair.sides:
        assert sorted(side.all(KeysUpdated), key=lambda report: report.sent) == [
            KeysUpdated(False, 1, 1),
            KeysUpdated(True, 1, 1),
        ]
        assert side.channel.rekeying.phase is Phase.IDLE
    assert_in_step(pair)


def test_rekeys_are_numbered_and_each_makes_new_keys() -> None:
    pair = open_pair()
    seen = {*secrets(pair.a)}
    for number in (1, 2, 3):
        pair.now += 10.0
        pair.a.core.rekey(pair.now)
        pair.pump()
        assert pair.a.all(KeysUpdated)[-1].rekey == number
        seen |= {*secrets(pair.a)}
        assert_in_step(pair)
    assert len(seen) == 8


def test_two_pairs_never_agree_on_the_same_keys() -> None:
    pairs = [open_pair() for _ in range(2)]
    for pair in pairs:
        pair.a.core.rekey(pair.now)
        pair.pump()
    assert not {*secrets(pairs[0].a)} & {*secrets(pairs[1].a)}


def test_data_under_way_in_both_directions_survives() -> None:
    pair = open_pair()
    for number in range(30):
        if number == 10:
            pair.a.core.rekey(pair.now)
        for side in pair.sides:
            side.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        pair.carry(pair.a if number % 3 else pair.b)
    pair.pump()
    for side in pair.sides:
        assert side.payloads == [b"%d" % number for number in range(30)]
    assert_in_step(pair)


def test_offers_that_cross() -> None:
    pair = open_pair()
    for side in pair.sides:
        side.core.rekey(pair.now)
    from_a, from_b = pair.a.take(pair.now), pair.b.take(pair.now)
    pair.deliver(pair.a, from_b)
    assert not pair.a.take(pair.now)  # the initiator ignores it
    pair.deliver(pair.b, from_a)
    pair.pump()
    assert [report.rekey for report in pair.a.all(KeysUpdated)] == [1, 1]
    assert_in_step(pair)
    # Neither the ignored nor the discarded offer counts.
    pair.b.core.rekey(pair.now)
    pair.pump()
    assert pair.b.all(KeysUpdated)[-1].rekey == 2
    assert_in_step(pair)


def test_a_rekey_and_plain_updates_cross() -> None:
    pair = open_pair()
    pair.a.core.rekey(pair.now)
    pair.a.core.update_keys(pair.now)
    pair.b.core.update_keys(pair.now)
    from_a, from_b = pair.a.take(pair.now), pair.b.take(pair.now)
    pair.deliver(pair.a, from_b)
    pair.deliver(pair.b, from_a)
    pair.pump()
    assert [(u.sent, u.epoch, u.rekey) for u in pair.a.all(KeysUpdated)] == [
        (True, 1, 0),
        (False, 1, 0),
        (True, 2, 1),
        (False, 2, 1),
    ]
    assert_in_step(pair)


def test_one_asked_for_during_another_is_that_one() -> None:
    pair = open_pair(rekey_allowance=2)
    pair.a.core.rekey(pair.now)
    pair.a.core.rekey(pair.now)
    pair.pump()
    pair.run(30.0)
    assert [report.rekey for report in pair.a.all(KeysUpdated)] == [1, 1]
    pair.a.core.rekey(pair.now)
    pair.pump()
    assert [report.rekey for report in pair.a.all(KeysUpdated)] == [1, 1, 2, 2]
    assert_in_step(pair)


# Violations.


def test_our_own_rate_is_kept_and_nothing_changes() -> None:
    pair = open_pair()
    pair.a.core.rekey(pair.now)
    pair.pump()
    pair.now += 9.99
    with pytest.raises(LimitReachedError):
        pair.a.core.rekey(pair.now)
    assert_in_step(pair)
    pair.now += 0.02
    pair.a.core.rekey(pair.now)
    pair.pump()
    assert_in_step(pair)


def test_our_rate_holds_at_the_other_side_however_late_an_offer_came() -> None:
    pair = open_pair()
    pair.a.core.rekey(pair.now)
    pair.now += 5.0  # it was delayed, the next one is not
    pair.pump()
    pair.now += 9.99
    with pytest.raises(LimitReachedError):
        pair.a.core.rekey(pair.now)
    pair.now += 0.02
    pair.a.core.rekey(pair.now)
    pair.pump()
    assert_in_step(pair)


def offer(pair: Pair, sender: Side, **settings: Any) -> None:
    pair.inject(sender, 0, 1, REKEY_OFFER, {keys.SHARE: share()}, sealed=True, **settings)


@pytest.mark.parametrize("who", ["a", "b"])
def test_an_offer_before_the_last_rekey_was_over(who: str) -> None:
    pair = open_pair()
    sender = getattr(pair, who)
    receiver = pair.other(sender)
    offer(pair, sender)
    assert receiver.code == ALIVE
    offer(pair, sender)  # our answer is sent, but its KeyUpdate hasn't arrived
    assert_ended(receiver, CloseCode.PROTOCOL_ERROR)


def test_more_than_one_offer_in_10_seconds_is_overloaded() -> None:
    for gap, code in ((9.9, CloseCode.OVERLOADED), (10.1, ALIVE)):
        pair = open_pair()
        pair.a.core.rekey(pair.now)
        pair.pump()
        pair.now += gap
        offer(pair, pair.a)
        assert pair.b.code == code


def test_an_allowance_is_an_allowance() -> None:
    pair = open_pair(rekey_allowance=3)
    for _ in range(3):
        pair.a.core.rekey(pair.now)
        pair.pump()
    offer(pair, pair.a)
    assert_violation(pair, pair.b, CloseCode.OVERLOADED)


def test_a_second_offer_while_the_first_is_ignored() -> None:
    pair = open_pair()
    pair.a.core.rekey(pair.now)
    offer(pair, pair.b)
    assert pair.a.code == ALIVE
    offer(pair, pair.b)
    assert_violation(pair, pair.a, CloseCode.PROTOCOL_ERROR)


def test_an_answer_that_nobody_asked_for() -> None:
    for asked in (False, True):
        pair = open_pair()
        if asked:  # one offer, two answers
            pair.b.core.rekey(pair.now)
            pair.pump()
        pair.inject(pair.a, 0, 1, REKEY_ANSWER, {keys.SHARE: answer()}, sealed=True)
        assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_an_answer_to_an_offer_that_was_forgotten() -> None:
    pair = open_pair()
    pair.b.core.rekey(pair.now)
    offer(pair, pair.a)
    pair.inject(pair.a, 0, 1, REKEY_ANSWER, {keys.SHARE: answer()}, sealed=True)
    assert_ended(pair.b, CloseCode.PROTOCOL_ERROR)


BAD: list[dict[int, Value]] = [
    {},
    {keys.SHARE: "x" * 32},
    {keys.SHARE: b""},
    {keys.SHARE: bytes(31)},
    {keys.SHARE: bytes(32)},  # an all-zero result
]


@pytest.mark.parametrize("cells", BAD)
def test_a_malformed_share(cells: dict[int, Value]) -> None:
    pair = open_pair()
    pair.inject(pair.a, 0, 1, REKEY_OFFER, cells, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)
    pair = open_pair()
    pair.b.core.rekey(pair.now)
    pair.inject(pair.a, 0, 1, REKEY_ANSWER, cells, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("number", [0, 1, 2, 2**64 - 1])
def test_a_rekeys_key_update_without_a_rekey(number: int) -> None:
    pair = open_pair()
    cells: dict[int, Value] = {keys.EPOCH: 1, keys.REKEY_NUMBER: number}
    pair.inject(pair.a, 0, 1, KEY_UPDATE, cells, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


WRONG: list[dict[int, Value]] = [
    {keys.EPOCH: 1, keys.REKEY_NUMBER: 0},
    {keys.EPOCH: 1, keys.REKEY_NUMBER: 2},
    {keys.EPOCH: 1, keys.REKEY_NUMBER: "1"},
    {keys.EPOCH: 2, keys.REKEY_NUMBER: 1},
    {keys.EPOCH: 0, keys.REKEY_NUMBER: 1},
    {keys.REKEY_NUMBER: 1},
]


@pytest.mark.parametrize("cells", WRONG)
def test_a_rekeys_key_update_with_wrong_numbers(cells: dict[int, Value]) -> None:
    pair = open_pair()
    offer(pair, pair.a)
    pair.inject(pair.a, 0, 1, KEY_UPDATE, cells, sealed=True)
    assert_ended(pair.b, CloseCode.PROTOCOL_ERROR)


def test_a_rekeys_key_update_twice() -> None:
    pair = open_pair()
    pair.a.core.rekey(pair.now)
    pair.pump()
    cells: dict[int, Value] = {keys.EPOCH: 2, keys.REKEY_NUMBER: 1}
    pair.inject(pair.a, 0, 1, KEY_UPDATE, cells, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("stream", "category", "subcategory", "payload"),
    [
        (1, 64, 1, b"x"),
        (0, 1, 6, b"\x00"),
        (0, 1, 8, b"\x00"),
        (0, 1, KEY_UPDATE, encode({keys.EPOCH: 1})),
        (0, 1, REKEY_OFFER, encode({keys.SHARE: bytes([9]) * 32})),
    ],
)
def test_the_answerers_key_update_comes_directly_after_its_answer(
    stream: int, category: int, subcategory: int, payload: bytes
) -> None:
    pair = open_pair()
    pair.a.core.rekey(pair.now)
    pair.a.take(pair.now)
    pair.inject(pair.b, 0, 1, REKEY_ANSWER, {keys.SHARE: answer()}, sealed=True)
    pair.inject(pair.b, stream, category, subcategory, payload, sealed=True)
    assert pair.a.code == CloseCode.PROTOCOL_ERROR
    assert not pair.a.events


def test_no_answer_within_30_seconds_is_a_timeout() -> None:
    pair = open_pair(idle_before_ping=1e6)
    pair.a.core.rekey(pair.now)
    pair.a.take(pair.now)
    pair.advance(29.9)
    assert pair.a.code == ALIVE
    pair.advance(0.2)
    assert pair.a.code == CloseCode.TIMEOUT


@pytest.mark.parametrize("who", ["offerer", "answerer"])
def test_a_rekey_that_is_not_finished_within_30_seconds_is_a_timeout(who: str) -> None:
    """The peer's KeyUpdate is withheld; plain KeyUpdates and other events don't replace it."""
    pair = open_pair(idle_before_ping=1e6)
    pair.a.core.rekey(pair.now)
    if who == "offerer":
        pair.a.take(pair.now)
        pair.advance(20.0)  # 30 seconds for the answer, and 30 for the KeyUpdate
        pair.inject(pair.b, 0, 1, REKEY_ANSWER, {keys.SHARE: answer()}, sealed=True)
        kept_waiting = pair.a
    else:
        pair.deliver(pair.b, pair.a.take(pair.now))
        pair.b.take(pair.now)
        kept_waiting = pair.b
    pair.advance(29.9)
    if who == "answerer":
        pair.inject(pair.a, 0, 1, KEY_UPDATE, {keys.EPOCH: 1}, sealed=True)
    assert kept_waiting.code == ALIVE
    pair.advance(0.2)
    assert kept_waiting.code == CloseCode.TIMEOUT


def test_a_rekey_that_is_finished_has_no_deadline() -> None:
    pair = open_pair(idle_before_ping=1e6)
    pair.a.core.rekey(pair.now)
    pair.pump()
    pair.run(100.0)
    assert_in_step(pair)


def test_rekeys_come_by_themselves_every_15_minutes_of_use() -> None:
    pair = open_pair()
    pair.a.core.send(1, 0, 64, 1, b"used", lbm=False)
    pair.run(899.9)
    assert not pair.a.all(KeysUpdated)
    pair.run(0.2)
    assert [report.rekey for report in pair.a.all(KeysUpdated)] == [1, 1]
    assert_in_step(pair)


def test_without_use_there_is_no_rekey() -> None:
    pair = open_pair(idle_before_ping=1e6)
    pair.run(3_000.0)
    assert not pair.a.all(KeysUpdated)
    assert not pair.a.wire


def test_keep_alive_is_no_use() -> None:
    pair = open_pair()
    pair.run(3_000.0)
    assert pair.a.wire  # there were Pings and Pongs
    assert not pair.a.all(KeysUpdated)
    assert not pair.b.all(KeysUpdated)


def test_the_responder_stands_in_when_the_initiator_does_not_rekey() -> None:
    pair = open_pair(a={"rekey_interval": 1e6})
    pair.a.core.send(1, 0, 64, 1, b"used", lbm=False)
    pair.run(1_000.0)
    assert pair.b.all(KeysUpdated)
    assert_in_step(pair)


def test_an_unencrypted_connection_has_no_keys() -> None:
    pair = open_pair(plaintext="only")
    with pytest.raises(LocalProtocolError):
        pair.a.core.rekey(pair.now)
    with pytest.raises(LocalProtocolError):
        pair.a.core.update_keys(pair.now)
    for subcategory in (8, KEY_UPDATE, REKEY_OFFER, REKEY_ANSWER):
        pair = open_pair(plaintext="only")
        payload = b"\x00" if subcategory == 8 else encode({keys.EPOCH: 1, keys.SHARE: share()})
        pair.inject(pair.a, 0, 1, subcategory, payload)
        assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


# The state alone.


def test_secrets_are_dropped_when_both_directions_have_them() -> None:
    offerer = RekeyState(SUITE, bytes(32), True, 1)
    answerer = RekeyState(SUITE, bytes(32), False, 1)
    sent = offerer.offer(0.0)
    offerer.offer_sent(b"a" * 32)
    assert answerer.offer_received(0.0)
    share_back, secret = answerer.answer(sent)
    answerer.derive(secret, b"a" * 32, b"b" * 32, 0.0)
    after_offer, same = offerer.answer_received(share_back, 0.0)
    assert (after_offer, same) == (b"a" * 32, secret)
    offerer.derive(same, after_offer, b"b" * 32, 0.0)
    assert offerer.take_sending() == answerer.take_receiving(1)
    assert offerer.phase is answerer.phase is Phase.SWITCHING
    assert answerer.take_sending() == offerer.take_receiving(1)
    for side in (offerer, answerer):
        assert side.phase is Phase.IDLE
        assert side._secrets is None
        with pytest.raises(RemoteProtocolError):
            side.take_receiving(1)
