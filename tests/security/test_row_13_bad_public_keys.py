"""Row 13. Mistake: bad public keys taken. Promise: a share with an all-zero X25519 result, a
malformed ML-KEM key or ciphertext, an Ed25519 key of small order and a P-256 point off its
curve end a handshake or a rekey with a typed error and its right close, before any callback.

The Wycheproof vectors through our wrappers are in tests/wycheproof/, the wrappers' own cases in
tests/crypto/; some of these faults over sockets in tests/interop/test_handshake_faults.py and
test_rekeys.py.
"""

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from nacl.bindings import crypto_core_ed25519_is_valid_point

from parley._crypto.exchange import EphemeralKey
from parley._crypto.identity import Identity
from parley._crypto.registry import KEX, SIGNING
from parley._crypto.signing import SigningKey
from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.protocol.codes import CONNECTION, KEY_UPDATE, REKEY_ANSWER, REKEY_OFFER, CloseCode
from parley._node.protocol.reports import ConnectionEnded, PeerIdentified
from parley._node.protocol.states import State
from tests.crypto.test_exchange import SMALL_ORDER, Q, with_coefficient
from tests.crypto.test_signing import NOT_CANONICAL
from tests.crypto.test_signing import SMALL_ORDER as SMALL_ORDER_KEYS
from tests.node.protocol.pair import ALIVE, Side, open_pair
from tests.security.changed_bytes import at, doing
from tests.security.insider import ALGORITHMS, meeting
from tests.security.middle import Instead, Middle, Passing
from tests.security.shapes import HELLO, REPLY, SECOND_HELLO, SHAPES, Shape, identity
from tests.security.tampering import recelled

X25519 = "x25519"
HYBRID = "x25519-mlkem768"
KEM_KEY_SIZE = 1_184
KEM_CIPHERTEXT_SIZE = 1_088

P256 = 2**256 - 2**224 + 2**192 + 2**96 - 1  # the prime of the field

each_side = pytest.mark.parametrize("who", [0, 1], ids=["initiator", "responder"])
each_kex = pytest.mark.parametrize("kex", [X25519, HYBRID])


def bad_shares(kex: str, good: bytes, *, initiators: bool) -> Iterator[tuple[str, bytes]]:
    """Shares in place of a good one that have to be refused as what they are."""
    curve = good[-32:]
    for point in SMALL_ORDER:
        yield f"small order {point.hex()[:8]}", good[:-32] + point
    for size in (0, 1, 31, 32, len(good) - 1, len(good) + 1):
        if size != len(good):
            yield f"{size} bytes", (good + b"\x00")[:size]
    if kex == X25519 or not initiators:
        return
    for index in (0, 1, 255, 256, 767):
        for value in (Q, Q + 1, 0xFFF):
            yield f"coefficient {index} is {value}", with_coefficient(good, index, value)
    yield "all ones", b"\xff" * KEM_KEY_SIZE + curve


def share_of(passing: Passing, kex: str) -> bytes:
    shares = decode(passing.frame[12:])[keys.SHARES]
    assert isinstance(shares, dict)
    share = shares[kex]
    assert isinstance(share, bytes)
    return share


def meet_with_share(shape: Shape, name: str, kex: str, what: str) -> Middle:
    """A meeting in which an event's share is replaced by the bad one of that name."""

    def tamper(passing: Passing) -> Instead:
        if passing.name != name:
            return Instead(passing.frame)
        good = share_of(passing, kex)
        bad = dict(bad_shares(kex, good, initiators=name != REPLY))[what]
        return at(name, recelled(lambda c: c.update({keys.SHARES: {kex: bad}})))(passing)

    middle = Middle(shape, tamper)
    middle.conclude()
    middle.assert_refused()
    return middle


CARRIERS = [
    (SHAPES["chain"], HELLO, X25519),
    (SHAPES["chain"], REPLY, X25519),
    (SHAPES["all choices"], HELLO, HYBRID),
    (SHAPES["all choices"], REPLY, HYBRID),
    (SHAPES["retry"], SECOND_HELLO, X25519),
    (SHAPES["retry"], REPLY, X25519),
]


@pytest.mark.parametrize(
    ("shape", "name", "kex"),
    CARRIERS,
    ids=[f"{shape.name}-{name}".replace(" ", "_") for shape, name, _ in CARRIERS],
)
def test_a_bad_share_in_the_handshake(shape: Shape, name: str, kex: str) -> None:
    """The code says that the key was looked at: a share that is only another one would have
    the Proof fail."""
    sample = share_of(Passing(name, shape.frames()[name]), kex)
    names = dict(bad_shares(kex, sample, initiators=name != REPLY))
    assert len(names) > 10
    for what in names:
        with doing(what):
            middle = meet_with_share(shape, name, kex, what)
            reader = middle.a if name == REPLY else middle.b
            assert reader.code == CloseCode.PROTOCOL_ERROR
            assert not middle.a.all(PeerIdentified) + middle.b.all(PeerIdentified)
            if reader is middle.b:  # Reject, which the initiator heard
                ended = middle.a.one(ConnectionEnded)
                assert (ended.code, ended.remote) == (CloseCode.PROTOCOL_ERROR, True)


def test_a_bad_share_in_a_private_network() -> None:
    """Nobody without the network key gets as far as that: silence."""
    shape = SHAPES["network"]
    for point in SMALL_ORDER:
        cells = {keys.SHARES: {X25519: point}}
        middle = Middle(shape, at(HELLO, recelled(lambda c, new=cells: c.update(new))))  # type: ignore[misc]  # a default binds it now
        middle.conclude()
        middle.assert_refused()
        assert middle.b.code == CloseCode.AUTHENTICATION_FAILED
        assert not middle.b.wire


@pytest.mark.parametrize("place", [0, 1, 500, KEM_CIPHERTEXT_SIZE - 1])
def test_a_wrong_ciphertext_of_the_right_size(place: int) -> None:
    """FIPS 203 has it decapsulate to an unrelated secret: then no Proof opens."""
    shape = SHAPES["all choices"]

    def tamper(passing: Passing) -> Instead:
        if passing.name != REPLY:
            return Instead(passing.frame)
        share = bytearray(share_of(passing, HYBRID))
        share[place] ^= 1
        new = {keys.SHARES: {HYBRID: bytes(share)}}
        return at(REPLY, recelled(lambda c: c.update(new)))(passing)

    middle = Middle(shape, tamper)
    middle.conclude()
    middle.assert_refused()
    assert middle.a.code == CloseCode.BAD_RECORD
    assert not middle.a.all(PeerIdentified)


# Rekeys.


def good_shares(kex: str) -> tuple[bytes, bytes]:
    """The share of an offer and that of its answer."""
    offer = KEX[kex].generate().share
    return offer, KEX[kex].respond(offer)[0]


@each_kex
@each_side
def test_a_bad_share_in_a_rekey(kex: str, who: int) -> None:
    offer, answer = good_shares(kex)
    for subcategory, good in ((REKEY_OFFER, offer), (REKEY_ANSWER, answer)):
        for what, bad in bad_shares(kex, good, initiators=subcategory == REKEY_OFFER):
            with doing(f"{what} in 1/{subcategory}"):
                pair = open_pair(algorithms={"kex": (kex,)})
                reader = pair.sides[who]
                writer = pair.other(reader)
                if subcategory == REKEY_ANSWER:
                    reader.core.rekey(pair.now)
                    reader.take(pair.now)  # its offer is answered by hand
                cells = {keys.SHARE: bad}
                pair.inject(writer, 0, CONNECTION, subcategory, cells, sealed=True)
                assert reader.code == CloseCode.PROTOCOL_ERROR
                assert not reader.events
                assert reader.core.state is State.FAREWELL
                if subcategory == REKEY_OFFER:
                    pair.carry(reader)
                    told = writer.one(ConnectionEnded)
                    assert (told.code, told.remote) == (CloseCode.PROTOCOL_ERROR, True)


@each_side
@pytest.mark.pure
def test_a_wrong_ciphertext_in_a_rekey(who: int) -> None:
    """Its keys are then keys that nobody else has: the first event under them ends it."""
    pair = open_pair(algorithms={"kex": (HYBRID,)})
    reader = pair.sides[who]
    writer = pair.other(reader)
    made: list[bytes] = []
    generate = KEX[HYBRID].generate

    def kept() -> EphemeralKey:
        key = generate()
        made.append(key.share)
        return key

    with patch.object(type(KEX[HYBRID]), "generate", lambda _: kept()):
        reader.core.rekey(pair.now)
    reader.take(pair.now)
    answer = bytearray(KEX[HYBRID].respond(made[0])[0])
    answer[7] ^= 1
    pair.inject(writer, 0, CONNECTION, REKEY_ANSWER, {keys.SHARE: bytes(answer)}, sealed=True)
    update = {keys.EPOCH: 1, keys.REKEY_NUMBER: 1}
    pair.inject(writer, 0, CONNECTION, KEY_UPDATE, update, sealed=True)
    assert reader.code == ALIVE
    pair.inject(writer, 1, 64, 1, b"under keys of its own", sealed=True)
    assert reader.code == CloseCode.BAD_RECORD
    assert not reader.events


# Identities.


def over_p256(x: int, y: int, form: int = 4) -> bytes:
    return bytes((form,)) + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def bad_identity_keys(algorithm: str) -> Iterator[tuple[str, bytes]]:
    """Public keys of an algorithm that are none."""
    good = identity("victim", algorithm).key(algorithm).public
    yield "a byte less", good[:-1]
    yield "a byte more", good + b"\x00"
    yield "empty", b""
    if algorithm == "ed25519":
        for point in SMALL_ORDER_KEYS:
            yield f"small order {point.hex()}", point
        for point in NOT_CANONICAL:
            yield f"not canonical {point.hex()}", point
        for y in range(2, 40):
            if not crypto_core_ed25519_is_valid_point(y.to_bytes(32, "little")):
                yield f"no point {y}", y.to_bytes(32, "little")
    if algorithm == "ecdsa-p256":
        x, y = int.from_bytes(good[1:33], "big"), int.from_bytes(good[33:], "big")
        yield "off the curve", over_p256(x, y ^ 1)
        yield "coordinates changed", over_p256(y, x)
        yield "the origin", over_p256(0, 0)
        yield "x beyond the field", over_p256(x + P256 if x + P256 < 1 << 256 else P256, y)
        yield "ones", over_p256((1 << 256) - 1, (1 << 256) - 1)
        yield "a point of another curve", over_p256(1, 1)
        for form in (0, 2, 3, 5, 6, 7):
            yield f"form {form}", over_p256(x, y, form)
        yield "compressed", bytes((2 + y % 2,)) + good[1:33]
        yield "infinity", b"\x00"


# Valid under any key of order 1 where a verifier is content with the equation: R is the
# neutral element, S is zero.
NEUTRAL_SIGNATURE = b"\x01" + bytes(63)


def shown_as(algorithm: str, public: bytes) -> Identity:
    """An identity that claims a bad key, signed as well as that can be."""
    honest = identity("victim", algorithm).key(algorithm)

    def sign(message: bytes) -> bytes:
        return NEUTRAL_SIGNATURE if algorithm == "ed25519" else honest.sign(message)

    return Identity.from_keys([SigningKey(algorithm, bytes(32), public, sign)])


@each_side
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_bad_identity_key(algorithm: str, who: int) -> None:
    """As the primary key, in a Proof signed with it."""
    for what, public in bad_identity_keys(algorithm):
        with doing(what):
            own = shown_as(algorithm, public)
            pair = meeting(algorithm, own) if who == 0 else meeting(algorithm, None, own)
            pair.pump()
            assert_refused(pair.sides[1 - who])


@each_side
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_bad_further_key(algorithm: str, who: int) -> None:
    """Bound by a good primary key that also signs the Proof."""
    primary = next(name for name in SIGNING if name != algorithm)
    good = identity("primary", primary).keys[0]
    for what, public in bad_identity_keys(algorithm):
        with doing(what):
            own = Identity.from_keys([good, shown_as(algorithm, public).keys[0]])
            pair = meeting(primary, own) if who == 0 else meeting(primary, None, own)
            pair.pump()
            assert_refused(pair.sides[1 - who])


def assert_refused(reader: Side) -> None:
    assert reader.code == CloseCode.AUTHENTICATION_FAILED
    assert not reader.all(PeerIdentified)
    assert not reader.opened
    assert not reader.events
