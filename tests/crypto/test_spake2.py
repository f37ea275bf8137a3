"""Tests of crypto/spake2.py with vectors of another implementation, and the rules of an
exchange.
"""

import pytest

from parley._crypto.errors import KeyExchangeError
from parley._crypto.hashing import label
from parley._crypto.registry import HASHES
from parley._crypto.spake2 import SHARE_SIZE, Confirmations, Spake2
from tests.vectors.load import Vector, of_kind, unhex, vectors


def password(vector: Vector) -> bytes:
    slot: int = vector["slot"]
    return b"parley1 code words" + slot.to_bytes(2) + str(vector["words"]).encode()


def context(vector: Vector) -> bytes:
    hash, slot = HASHES[vector["hash"]], int(vector["slot"])
    exporter, session = unhex(vector["exporter"]), unhex(vector["session_id"])
    bound = label(hash, exporter, "code", session, 32)
    return b"parley1 code session" + slot.to_bytes(2) + bound


def side(vector: Vector, name: str) -> Spake2:
    first = name == "taker"
    private = unhex(vector["x" if first else "y"])
    return Spake2(password(vector), first=first, private=private)


def finished(vector: Vector, ours: Spake2, theirs: bytes) -> Confirmations:
    return ours.finish(theirs, unhex(vector["taker"]), unhex(vector["giver"]), context(vector))


@vectors("codes", of_kind("exchange"))
def test_an_exchange(vector: Vector) -> None:
    opening, answer, of_taker, of_giver = map(unhex, vector["expected"]["messages"])
    assert context(vector).hex() == vector["expected"]["aad"]
    taker, giver = side(vector, "taker"), side(vector, "giver")
    assert (taker.share, giver.share) == (opening[2:], answer)
    shown, waited = finished(vector, taker, answer), finished(vector, giver, opening[2:])
    assert (shown.ours, waited.ours) == (of_taker, of_giver)
    assert shown.check(of_giver)
    assert waited.check(of_taker)


@vectors("codes", of_kind("share"))
def test_a_share_that_is_refused(vector: Vector) -> None:
    with pytest.raises(KeyExchangeError):
        finished(vector, side(vector, vector["side"]), unhex(vector["share"]))


@vectors("codes", of_kind("confirmation"))
def test_a_confirmation_of_something_else(vector: Vector) -> None:
    other = side(vector, "giver" if vector["side"] == "taker" else "taker")
    ours = finished(vector, side(vector, vector["side"]), other.share)
    assert not ours.check(unhex(vector["claimed"]))


@pytest.mark.parametrize("size", [0, SHARE_SIZE - 1, SHARE_SIZE + 1])
def test_a_share_of_another_size(size: int) -> None:
    with pytest.raises(KeyExchangeError):
        Spake2(b"", first=True).finish(bytes(size), b"", b"", b"")


def test_a_side_serves_once() -> None:
    other = Spake2(b"same", first=False)
    for theirs in (other.share, bytes(SHARE_SIZE)):
        ours = Spake2(b"same", first=True)
        try:
            ours.finish(theirs, b"a", b"b", b"")
        except KeyExchangeError:
            assert theirs != other.share
        with pytest.raises(KeyExchangeError, match="cannot use this side of SPAKE2 again"):
            ours.finish(other.share, b"a", b"b", b"")


def test_each_exchange_is_its_own() -> None:
    shares = {Spake2(b"same", first=True).share for _ in range(20)}
    assert len(shares) == 20


def test_it_shows_no_secret() -> None:
    ours = Spake2(b"crossover", first=True)
    confirmations = ours.finish(Spake2(b"crossover", first=False).share, b"", b"", b"")
    assert repr(ours) == "<Spake2 of side A>"
    assert repr(confirmations) == "Confirmations()"
