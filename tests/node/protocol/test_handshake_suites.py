"""Tests of suites with each pair of algorithms: a handshake, 200 events each way, new keys, and a
Close.
"""

from parley._crypto.registry import NAMES, PARAMETERS, Suite, all_suites
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import HandshakeCompleted, KeysUpdated
from tests.node.protocol.pair import ALICE, BOB, Pair, algorithms, make_config
from tests.sampling import pairwise
from tests.sweep import sweep

EVENTS = 200


def exchange(pair: Pair) -> None:
    """Send `EVENTS` events each way, ten at a time, with key changes in between."""
    for number in range(EVENTS):
        for side, name in zip(pair.sides, b"ab", strict=True):
            side.core.send(1, 0, 64, 1, b"%c%d" % (name, number), lbm=False)
        if number == 50:
            pair.a.core.update_keys(pair.now)
        elif number == 70:
            pair.b.core.update_keys(pair.now)
        elif number == 100:
            pair.a.core.rekey(pair.now)
        elif number == 150:
            pair.b.core.rekey(pair.now)
        if number % 10 == 9:
            pair.pump()


def test_all_suites_are_listed() -> None:
    names = {str(suite.names()) for suite in all_suites()}
    assert len(names) == len(list(all_suites())) == 2 * 3 * 4 * 3 * 2


@sweep("suite", [Suite(*names) for names in pairwise(*(NAMES[each] for each in PARAMETERS))])
def test_a_suite(suite: Suite) -> None:
    names = algorithms(suite)
    pair = Pair(make_config(ALICE, algorithms=names), make_config(BOB, algorithms=names))
    pair.pump()
    for side in pair.sides:
        assert side.one(HandshakeCompleted).agreed.suite == suite
    exchange(pair)
    assert pair.a.payloads == [b"b%d" % number for number in range(EVENTS)]
    assert pair.b.payloads == [b"a%d" % number for number in range(EVENTS)]
    for side in pair.sides:
        updates = [(r.sent, r.epoch, r.rekey) for r in side.all(KeysUpdated)]
        for sent in (True, False):
            assert [(epoch, rekey) for s, epoch, rekey in updates if s == sent] == [
                (1, 0),
                (2, 1),
                (3, 2),
            ]
    pair.a.core.close(pair.now)
    pair.pump()
    assert pair.a.code == pair.b.code == CloseCode.NORMAL
