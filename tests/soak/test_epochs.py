"""Epochs are counted as the core tells of them, and only under load."""

from node.protocol.observer import Observer
from tests.node.protocol.pair import ALICE, BOB, FAST, Pair, make_config
from tests.soak.epochs import Epochs


def observed() -> tuple[Pair, Epochs, Epochs]:
    """Two sides that have met, and the sums of each."""
    sums = Epochs(), Epochs()
    observers: tuple[Observer, Observer] = (sums[0].observer(), sums[1].observer())
    names = {"algorithms": FAST}
    pair = Pair(make_config(ALICE, **names), make_config(BOB, **names), observers=observers)
    pair.pump()
    return pair, *sums


def test_each_change_of_keys_is_counted_once() -> None:
    pair, ours, theirs = observed()
    pair.a.core.update_keys(pair.now)
    pair.a.core.update_keys(pair.now)
    pair.a.core.rekey(pair.now)
    pair.pump()
    pair.a.core.close(pair.now)
    pair.pump()
    assert (ours.sent, ours.received, ours.rekeys) == (3, 1, 1)
    assert (theirs.sent, theirs.received, theirs.rekeys) == (1, 3, 1)
    assert ours.connections == theirs.connections == 1
    assert ours.events == theirs.events > 5


def test_what_comes_after_the_load_is_not_counted() -> None:
    pair, ours, _ = observed()
    pair.a.core.update_keys(pair.now)
    ours.rest()
    pair.a.core.update_keys(pair.now)
    pair.a.core.close(pair.now)
    pair.pump()
    assert (ours.connections, ours.sent) == (1, 1)


def test_a_connection_without_its_epochs_is_late() -> None:
    sums = Epochs()
    for changes, seconds in ((3, 4.9), (2, 4.0), (0, 1.9), (9, 3.0)):
        counter = sums.observer()
        counter.sent = counter.received = changes
        sums.add(counter, seconds)
    assert sums.late == 1
    assert sums.slowest == 0.0
    assert sums.summary()["connections"] == 4
