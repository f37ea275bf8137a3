"""Row 21, key updates written but not exercised: keys of a past epoch are deleted.

Each limit, also under load on both sides: tests/node/protocol/test_channel.py. Rekeys that cross in
every order: tests/node/protocol/test_rekey.py. Both against another implementation:
tests/interop/test_rekeys.py.
"""

import pytest

from tests.node.protocol.pair import open_pair
from tests.security.key_search import Witnesses, kept_keys

pytestmark = pytest.mark.alone


# The search runs between two events.


def test_the_search_finds_what_was_kept() -> None:
    """Without this check, an empty result of the search would have no meaning."""
    witnesses = Witnesses(), Witnesses()
    pair = open_pair(observers=witnesses)
    kept: list[object] = [pair.a.channel.sender.secret]  # where the search can find it
    pair.a.core.send(1, 0, 64, 1, b"x")
    pair.pump()
    pair.a.core.update_keys(pair.now)
    pair.pump()
    assert set(kept_keys(witnesses[:1])) == {
        f"a secret of epoch 0 (sent, stream {stream})" for stream in (0, 1)
    }
    kept.clear()
    assert kept_keys(witnesses) == []
    kept.append(pair.a.channel.sender.ciphers)
    pair.a.core.send(1, 0, 64, 1, b"x")
    pair.pump()
    pair.a.core.update_keys(pair.now)
    pair.pump()
    assert "a key of epoch 1 (sent, stream 1)" in kept_keys(witnesses[:1])
    kept.clear()
    assert kept_keys(witnesses) == []


def test_an_update_leaves_nothing_even_if_the_other_side_keeps_its_own_back() -> None:
    """A peer answers a local offer and then stops.

    The local direction has the rekey's key and switches to later ones. It must not keep the keys of
    the rekey.
    """
    witnesses = Witnesses(), Witnesses()
    pair = open_pair(observers=witnesses)
    pair.a.core.rekey(pair.now)
    pair.carry(pair.a)
    answer = pair.b.take(pair.now)  # RekeyAnswer, and b's KeyUpdate
    first = 4 + int.from_bytes(answer[:4])
    pair.deliver(pair.a, answer[:first])
    for _ in range(2):
        pair.carry(pair.a)
        pair.a.core.update_keys(pair.now)
    pair.carry(pair.a)
    assert witnesses[0].epochs == [0, 3]
    assert [kept for kept in kept_keys(witnesses[:1]) if "(sent" in kept] == []
    pair.deliver(pair.a, answer[first:])
    pair.pump()
    assert witnesses[0].epochs == [1, 3]
    assert kept_keys(witnesses) == []


def test_nothing_of_a_handshake_is_kept() -> None:
    """This covers `hs`, the shared secret and the keys of the Proofs, from the first moment."""
    witnesses = Witnesses(), Witnesses()
    pair = open_pair(observers=witnesses)
    assert [w.epoch for w in witnesses[0].past] == [-1, -1]
    assert kept_keys(witnesses) == []
    assert pair.a.state == "OPEN"
