"""Row 11. Mistake: signatures without domain separation.

Promise: a signature made for one purpose (a Proof, a seal, a key binding) is refused for every
other, even if the bytes after the domain's name are the same.
"""

from collections.abc import Callable, Iterator
from itertools import permutations

import pytest

from parley._crypto.errors import IdentityError, SignatureError
from parley._crypto.hashing import label
from parley._crypto.identity import Identity, NodeId, PublicIdentity
from parley._crypto.key_schedule import (
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
)
from parley._crypto.record_protection import check_seal, make_seal, seal_mask
from parley._crypto.registry import HASHES, SIGNING
from parley._crypto.signing import SigningKey
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import PeerIdentified
from tests.node.protocol.pair import Pair
from tests.security.insider import ALGORITHMS, meeting, signing_as
from tests.security.shapes import identity

SEAL = b"parley1 seal"
BINDING = b"parley1 key binding"
# All other names under which data is hashed, authenticated or derived.
OTHER_DOMAINS = (
    b"parley1 envelope",
    b"parley1 key statement",
    b"parley1 successor consent",
    b"parley1 recovery key",
    b"parley1 recoverable id",
    b"parley1 node id",
    b"parley1 chain",
    b"parley1 hello",
    b"parley1 key file\n",
    b"parley1 ",
    b"",
    b"parley1 seal ",
    b"parley1 sea",
    b"parley2 seal",
)
WRONG_FOR_A_SEAL = (BINDING, *OTHER_DOMAINS)
WRONG_FOR_A_BINDING = (SEAL, *OTHER_DOMAINS)
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
each_side = pytest.mark.parametrize("who", [0, 1], ids=["initiator", "responder"])


class Ledger:
    """A key that records the signed data, and can sign under another domain's name."""

    def __init__(self, algorithm: str, name: str) -> None:
        self._key = identity(name, algorithm).key(algorithm)
        self.messages: list[bytes] = []
        self.rename: Callable[[bytes], bytes] = lambda message: message

    def key(self) -> SigningKey:
        return signing_as(self._key, self._sign)

    def identity(self) -> Identity:
        return Identity.from_keys([self.key()])

    def lie(self, wrong: bytes) -> None:
        """Sign seals under the domain `wrong` from now on."""
        self.rename = lambda message: wrong + message.removeprefix(SEAL)

    def _sign(self, message: bytes) -> bytes:
        self.messages.append(message)
        return self._key.sign(self.rename(message))


def lying_pair(algorithm: str, who: int) -> tuple[Pair, Ledger]:
    """Return a pair, one side of which signs through a recording key."""
    ledger = Ledger(algorithm, "initiator" if who == 0 else "responder")
    own = ledger.identity()
    pair = meeting(algorithm, own) if who == 0 else meeting(algorithm, None, own)
    return pair, ledger


def test_no_domain_is_the_beginning_of_another() -> None:
    signed = (SEAL, BINDING)
    for one, other in permutations((*signed, *OTHER_DOMAINS[:9]), 2):
        assert not one.startswith(other)


@each_algorithm
def test_every_signature_of_a_session_names_its_purpose(algorithm: str) -> None:
    """There are two purposes, and after the name only a chain value or a binding."""
    ledgers = [Ledger(algorithm, name) for name in ("initiator", "responder")]
    further = next(name for name in ALGORITHMS if name != algorithm)
    owns = [
        Identity.from_keys([ledger.key(), identity("further", further).key(further)])
        for ledger in ledgers
    ]
    pair = meeting(algorithm, *owns)
    pair.pump()
    for side in pair.sides:
        side.core.send(1, 0, 64, 1, b"data", lbm=False, seal=True)
        side.core.update_keys(pair.now)
        pair.pump()
    pair.a.core.rekey(pair.now)
    pair.pump()
    pair.a.core.close(pair.now)
    pair.pump()
    hash_size = HASHES["sha256"].size
    for ledger in ledgers:
        bindings = [m for m in ledger.messages if m.startswith(BINDING)]
        seals = [m for m in ledger.messages if m.startswith(SEAL)]
        assert len(bindings) == 1
        assert len(bindings) + len(seals) == len(ledger.messages)
        assert len(seals) >= 4
        assert {len(m) for m in seals} == {len(SEAL) + hash_size}
        assert len(set(seals)) == len(seals)


@each_side
@each_algorithm
def test_a_proof_signed_for_another_purpose(algorithm: str, who: int) -> None:
    for wrong in WRONG_FOR_A_SEAL:
        pair, ledger = lying_pair(algorithm, who)
        ledger.lie(wrong)
        pair.pump()
        refuser = pair.sides[1 - who]
        assert refuser.code == CloseCode.AUTHENTICATION_FAILED, wrong
        assert not refuser.all(PeerIdentified)
        assert not refuser.opened


@each_side
@each_algorithm
def test_a_binding_signed_for_another_purpose(algorithm: str, who: int) -> None:
    """The Proof is correct in every other respect."""
    further = next(name for name in ALGORITHMS if name != algorithm)
    for wrong in (*WRONG_FOR_A_BINDING, BINDING):
        ledger = Ledger(algorithm, "lying")
        ledger.rename = lambda m, w=wrong: (  # type: ignore[misc]  # a default binds it now
            w + m.removeprefix(BINDING) if m.startswith(BINDING) else m
        )
        own = Identity.from_keys([ledger.key(), identity("further", further).key(further)])
        pair = meeting(algorithm, own) if who == 0 else meeting(algorithm, None, own)
        pair.pump()
        reader = pair.sides[1 - who]
        assert bool(reader.all(PeerIdentified)) == (wrong == BINDING), wrong
        if wrong != BINDING:
            assert reader.code == CloseCode.AUTHENTICATION_FAILED


@each_algorithm
def test_the_same_bytes_as_a_binding_and_as_a_chain_value(algorithm: str) -> None:
    """64 bytes can be both: a node ID with a key of an unknown algorithm, or a SHA-512 hash."""
    key = identity("both", algorithm).key(algorithm)
    verifier = SIGNING[algorithm].verifier(key.public)
    node_id = NodeId.of_key(algorithm, key.public)
    public = bytes(range(26))
    content = node_id + b"\x05other" + public
    hash, commit = HASHES["sha512"], bytes(64)
    assert len(content) == hash.size

    seal = make_seal(key, hash, commit, content)
    check_seal(verifier, hash, commit, content, seal)
    mask = seal_mask(hash, commit, content, len(seal))
    signature = bytes(a ^ b for a, b in zip(seal, mask, strict=True))
    primary = (algorithm, key.public, None)
    with pytest.raises(IdentityError):
        PublicIdentity([primary, ("other", public, signature)])

    binding = key.sign(BINDING + content)
    PublicIdentity([primary, ("other", public, binding)])
    with pytest.raises(SignatureError):
        check_seal(verifier, hash, commit, content, _xor(binding, mask))
    with pytest.raises(SignatureError):
        check_seal(verifier, hash, commit, content, binding)


@each_algorithm
def test_a_binding_is_of_one_key_algorithm_and_node(algorithm: str) -> None:
    """The boundaries between the fields are signed as well."""
    key = identity("both", algorithm).key(algorithm)
    primary = (algorithm, key.public, None)
    node_id = NodeId.of_key(algorithm, key.public)
    signature = key.sign(BINDING + node_id + b"\x05other" + b"public")
    PublicIdentity([primary, ("other", b"public", signature)])
    for name, public in (("othe", b"rpublic"), ("otherp", b"ublic"), ("other", b"public\x00"),
                         ("Other", b"public"), ("o", b"ther" + b"public")):  # fmt: skip
        with pytest.raises(IdentityError):
            PublicIdentity([primary, (name, public, signature)])
    stranger = identity("stranger", algorithm).keys[0]
    with pytest.raises(IdentityError):
        PublicIdentity([(algorithm, stranger.public, None), ("other", b"public", signature)])


@pytest.mark.parametrize("name", HASHES)
def test_chain_values_of_each_place_differ(name: str) -> None:
    """Values that are signed at different places of the protocol always differ."""
    hash = HASHES[name]
    same, commit = bytes(hash.size), bytes(hash.size)

    def values() -> Iterator[bytes]:
        yield chain_start_initiator(hash, same, commit)
        yield chain_start_responder(hash, same, commit)
        yield chain_bind(hash, same, commit)
        yield chain_rekey(hash, same, commit)
        yield hash.digest(same + bytes(4) + commit)  # an event's
        yield label(hash, commit, "seal mask", same, hash.size)

    assert len(set(values())) == 6


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
