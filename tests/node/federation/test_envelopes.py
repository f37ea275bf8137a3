"""Envelopes: what is signed, by whom, and what is not an envelope."""

import pytest

from parley._crypto.errors import SignatureError
from parley._crypto.identity import Identity, NodeId
from parley._lbm import keys
from parley._lbm.codec import Encodable, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.federation.envelopes import CONTENT_CELLS, Envelope, sign_envelope
from parley._node.protocol.cells import Cells
from tests.node.federation.servers import MS, identity, node_id

KINDS = Cells(CONTENT_CELLS)
CONTENT: dict[int, Encodable] = {keys.KIND: "mail", keys.MADE_MS: MS, keys.EXPIRES_MS: MS + 1}


def read(encoded: bytes) -> Envelope:
    return Envelope(encoded, "mail", KINDS)


def signed_content(content: dict[int, Encodable], signer: int = 0) -> bytes:
    """An envelope with just this content, rightly signed."""
    key = identity(signer).keys[0]
    body = encode(content)
    signature = key.sign(b"parley1 envelope" + b"\x07" + b"ed25519" + body)
    return encode({keys.CONTENT: body, keys.SIGNING: "ed25519", keys.SIGNATURE: signature})


@pytest.mark.parametrize("algorithm", ["ed25519", "ml-dsa-65", "ecdsa-p256"])
def test_what_was_signed_is_read_and_verified(algorithm: str) -> None:
    # An envelope has the primary key alone, however many there are.
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


def test_the_key_is_the_origins() -> None:
    public = identity(0).keys[0].public
    good: dict[int, Encodable] = {
        **CONTENT,
        keys.ORIGIN: node_id(0),
        keys.IDENTITY_KEYS: [["ed25519", public, None]],
    }
    read(signed_content(good)).verify()
    bad: list[dict[int, Encodable]] = [
        {keys.ORIGIN: node_id(1)},
        {keys.ORIGIN: node_id(0)[:31]},
        {keys.IDENTITY_KEYS: []},
        {keys.IDENTITY_KEYS: [["ed25519", public, None]] * 2},
        {keys.IDENTITY_KEYS: [["ed25519", public]]},
        {keys.IDENTITY_KEYS: [["ed25519", public, b"bound"]]},
        {keys.IDENTITY_KEYS: [["ed25519", "text", None]]},
        {keys.IDENTITY_KEYS: [[b"ed25519", public, None]]},
        {keys.IDENTITY_KEYS: [["", public, None]]},
        {keys.IDENTITY_KEYS: [["a" * 256, public, None]]},
        {keys.IDENTITY_KEYS: [["ecdsa-p256", public, None]]},
        {keys.IDENTITY_KEYS: ["ed25519"]},
        {keys.KIND: "card"},
        {keys.MADE_MS: -1},
    ]
    for cells in bad:
        with pytest.raises(LbmDecodeError):
            read(signed_content({**good, **cells}))
    for missing in good:
        with pytest.raises(LbmDecodeError):
            read(signed_content({key: good[key] for key in good if key != missing}))


def test_an_algorithm_that_is_not_known_is_malformed() -> None:
    """And not a forgery: whoever passes it on may know it."""
    key = b"a key"
    content: dict[int, Encodable] = {
        **CONTENT,
        keys.ORIGIN: NodeId.of_key("later", key),
        keys.IDENTITY_KEYS: [["later", key, None]],
    }
    with pytest.raises(LbmDecodeError):
        read(encode({keys.CONTENT: encode(content), keys.SIGNING: "later", keys.SIGNATURE: b"x"}))


def test_nothing_else_travels_with_it() -> None:
    encoded = sign_envelope(identity(0), CONTENT)
    cells = decode(encoded)
    for more in ({keys.NOISE: bytes(8)}, {keys.SEALED: b"not signed"}, {300: 1}):
        with pytest.raises(LbmDecodeError):
            read(encode({**cells, **more}))
    for missing in cells:
        with pytest.raises(LbmDecodeError):
            read(encode({key: cells[key] for key in cells if key != missing}))


def test_the_key_of_another_envelope_is_taken_only_of_the_same_origin() -> None:
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
