"""Tests of crypto/key_exchange.py: agreement, published values, and every invalid share."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import KeyExchangeError
from parley._crypto.key_exchange import EphemeralKey, KexAlgorithm
from parley._crypto.registry import KEX
from tests.sweep import sweep

each_kex = pytest.mark.parametrize("kex", KEX.values(), ids=lambda kex: kex.name)

X25519 = KEX["x25519"]
HYBRID = KEX["x25519-mlkem768"]

# All u that result in zero, with both values of the ignored top bit, canonical or not (RFC 7748;
# see the list of https://cr.yp.to/ecdh.html).
P = 2**255 - 19
ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
SMALL_ORDER = [
    (u | top << 255).to_bytes(32, "little")
    for u in (0, 1, P - 1, P, P + 1, *ORDER_8)
    for top in (0, 1)
]


@each_kex
def test_both_sides_agree(kex: KexAlgorithm) -> None:
    key = kex.generate()
    share, secret = kex.respond(key.share)
    assert len(key.share) == kex.initiator_share_size
    assert len(share) == kex.responder_share_size
    assert len(secret) == kex.secret_size
    assert key.derive(share) == secret


@each_kex
def test_every_exchange_is_fresh(kex: KexAlgorithm) -> None:
    assert kex.generate().share != kex.generate().share
    share = kex.generate().share
    assert kex.respond(share)[1] != kex.respond(share)[1]


@each_kex
def test_a_key_is_used_once(kex: KexAlgorithm) -> None:
    key = kex.generate()
    share, _ = kex.respond(key.share)
    key.derive(share)
    with pytest.raises(KeyExchangeError):
        key.derive(share)


@each_kex
def test_a_key_is_spent_by_a_bad_share_too(kex: KexAlgorithm) -> None:
    key = kex.generate()
    share, _ = kex.respond(key.share)
    with pytest.raises(KeyExchangeError):
        key.derive(b"")
    with pytest.raises(KeyExchangeError):
        key.derive(share)


@each_kex
def test_wrong_sizes(kex: KexAlgorithm) -> None:
    key = kex.generate()
    share, _ = kex.respond(key.share)
    for bad in (b"", key.share[:-1], key.share + b"\0"):
        with pytest.raises(KeyExchangeError):
            kex.respond(bad)
    for bad in (b"", share[:-1], share + b"\0"):
        with pytest.raises(KeyExchangeError):
            kex.generate().derive(bad)
    for size in (0, kex.private_size - 1, kex.private_size + 1):
        with pytest.raises(KeyExchangeError):
            kex.from_private(bytes(size))


@sweep("bad", SMALL_ORDER, ids=lambda bad: bad.hex()[:8] + bad.hex()[-2:])
def test_an_all_zero_x25519_result_is_refused(bad: bytes) -> None:
    with pytest.raises(KeyExchangeError):
        X25519.respond(bad)
    with pytest.raises(KeyExchangeError):
        X25519.generate().derive(bad)
    key = HYBRID.generate()
    share, _ = HYBRID.respond(key.share)
    with pytest.raises(KeyExchangeError):
        HYBRID.respond(key.share[:-32] + bad)
    with pytest.raises(KeyExchangeError):
        key.derive(share[:-32] + bad)


@pytest.mark.parametrize("position", [0, 500, 1087, 1088, 1119])
def test_an_altered_answer_gives_another_secret(position: int) -> None:
    # FIPS 203 rejects implicitly: there is no error, but the Proof won't decrypt.
    key = HYBRID.generate()
    share, secret = HYBRID.respond(key.share)
    altered = bytearray(share)
    altered[position] ^= 1
    assert key.derive(bytes(altered)) != secret


def test_both_halves_of_the_hybrid_secret_count() -> None:
    key = HYBRID.generate()
    share, secret = HYBRID.respond(key.share)
    other_share, other_secret = HYBRID.respond(key.share)
    assert secret[:32] != other_secret[:32]
    assert secret[32:] != other_secret[32:]
    # The halves are independent: an answer combined from two has the secret of each half.
    mixed = key.derive(share[:1088] + other_share[1088:])
    assert mixed == secret[:32] + other_secret[32:]


@each_kex
@given(data=st.data())
def test_any_share_is_taken_or_refused_with_the_typed_error(
    kex: KexAlgorithm, data: st.DataObject
) -> None:
    sizes = (kex.initiator_share_size, kex.responder_share_size, 31)
    share = data.draw(st.binary(max_size=64))
    share = share.ljust(data.draw(st.sampled_from(sizes)), b"\x02")
    attempts: list[Callable[[bytes], bytes]] = [
        lambda share: kex.respond(share)[1],
        lambda share: kex.generate().derive(share),
    ]
    for attempt in attempts:
        try:
            secret = attempt(share)
        except KeyExchangeError:
            continue
        assert len(secret) == kex.secret_size


@each_kex
def test_no_secret_in_repr(kex: KexAlgorithm) -> None:
    private = b"K" * kex.private_size
    key = kex.from_private(private)
    assert isinstance(key, EphemeralKey)
    assert kex.name in repr(key)
    assert "KKKK" not in repr(key)
    assert (b"K" * 4).hex() not in repr(key)
