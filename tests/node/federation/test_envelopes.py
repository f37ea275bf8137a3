"""Envelopes: the signed content, the signer, and invalid envelopes."""

import pytest

from parley._crypto.errors import SignatureError
from parley._crypto.identity import Identity
from parley._lbm import keys
from parley._lbm.codec import Encodable, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.federation.envelopes import CONTENT_CELLS, Envelope, sign_envelope
from parley._node.protocol.payload_schema import PayloadSchema
from tests.node.federation.servers import MS, identity

KINDS = PayloadSchema(CONTENT_CELLS)
CONTENT: dict[int, Encodable] = {keys.KIND: "mail", keys.MADE_MS: MS, keys.EXPIRES_MS: MS + 1}


def read(encoded: bytes) -> Envelope:
    return Envelope(encoded, "mail", KINDS)


@pytest.mark.parametrize("algorithm", ["ed25519", "ml-dsa-65", "ecdsa-p256"])
def test_signed_envelope_is_verified(algorithm: str) -> None:
    # An envelope contains only the primary key, however many keys the identity has.
    origin = Identity.create(["ed25519", "ecdsa-p256"] if algorithm == "ed25519" else [algorithm])
    envelope = read(sign_envelope(origin, CONTENT))
    envelope.verify()
    assert envelope.origin == origin.node_id
    assert (envelope.made_ms, envelope.expires_ms) == (MS, MS + 1)
    assert envelope.cells[keys.IDENTITY_KEYS] == [[algorithm, origin.keys[0].public, None]]


def test_each_changed_bit_is_found() -> None:
    encoded = sign_envelope(identity(0), CONTENT)
    for place in range(8 * len(encoded)):
        changed = bytearray(encoded)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises((LbmDecodeError, SignatureError)):
            read(bytes(changed)).verify()


def test_verified_key_is_reused_only_for_the_same_origin() -> None:
    first, second = (
        read(sign_envelope(identity(0), CONTENT)),
        read(sign_envelope(identity(1), CONTENT)),
    )
    first.verify(second)
    second.verify(first)
    read(sign_envelope(identity(0), CONTENT)).verify(first)
    forged = decode(sign_envelope(identity(0), CONTENT))
    forged[keys.SIGNATURE] = bytes(64)
    for other in (None, first, second):
        with pytest.raises(SignatureError):
            read(encode(forged)).verify(other)


def test_the_origin_of_an_envelope_covers_its_recovery_key() -> None:
    origin, _ = Identity.create_recoverable(["ed25519", "ecdsa-p256"])
    envelope = read(sign_envelope(origin, CONTENT))
    envelope.verify()
    assert envelope.origin == origin.node_id
    assert envelope.cells[keys.IDENTITY_KEYS] == origin.cells()[:2]
    content = {**CONTENT, keys.ORIGIN: origin.node_id}
    for cells in (origin.cells()[:1], origin.cells(), origin.cells()[::2]):
        forged = decode(envelope.encoded)
        forged[keys.CONTENT] = encode({**content, keys.IDENTITY_KEYS: cells})
        with pytest.raises(LbmDecodeError):
            read(encode(forged))
