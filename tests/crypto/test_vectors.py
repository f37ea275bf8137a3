"""Tests of crypto against the vectors of keys, key schedule, seals and identities."""

import pytest

from parley._crypto.errors import (
    CryptoError,
    DecryptError,
    IdentityError,
    KeyExchangeError,
    SignatureError,
)
from parley._crypto.hashing import label
from parley._crypto.identity import NodeId, PublicIdentity
from parley._crypto.key_exchange import EphemeralKey
from parley._crypto.key_schedule import (
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
    handshake_secrets,
    next_secret,
    rekey_root,
    rekey_secrets,
)
from parley._crypto.record_protection import HashChain, StreamKey, check_seal, make_seal, seal_mask
from parley._crypto.registry import HASHES, KEX, SIGNING, Suite
from parley._lbm.codec import decode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import read_array
from parley._lbm.keys import IDENTITY_KEYS
from tests.vectors.load import Vector, of_kind, unhex, vectors

RANDOMISED = ("ml-dsa-65",)  # its signatures are verified, not compared


def derived(vector: Vector) -> bytes:
    hash = HASHES[vector["hash"]]
    secret, context = unhex(vector["secret"]), unhex(vector["context"])
    return label(hash, secret, vector["label"], context, vector["size"])


@vectors("labels", fails=False)
def test_a_label(vector: Vector) -> None:
    assert derived(vector).hex() == vector["expected"]


@vectors("labels", lambda vector: "claimed" in vector, fails=True)
def test_another_label(vector: Vector) -> None:
    assert derived(vector).hex() != vector["claimed"]


@vectors("labels", lambda vector: "claimed" not in vector, fails=True)
def test_a_label_that_cannot_be(vector: Vector) -> None:
    with pytest.raises((ValueError, OverflowError)):
        derived(vector)


@vectors("schedule", fails=False)
def test_the_key_schedule(vector: Vector) -> None:
    hash, expected = HASHES[vector["hash"]], dict(vector["expected"])
    network_key = vector["network_key"] and unhex(vector["network_key"])
    t1, proof_r, proof_i = (
        unhex(vector[name]) for name in ("t1", "responder_proof", "initiator_proof")
    )
    th1 = hash.digest(t1)
    th2 = hash.digest(t1 + proof_r + proof_i)
    secrets = handshake_secrets(hash, th1, unhex(vector["shared_secret"]), network_key)
    application = secrets.application(th2)
    start = chain_start_responder(hash, th1, secrets.commit)
    step = HashChain(hash, start).advance(
        vector["step_stream"].to_bytes(4, "big"), unhex(vector["step_blob"])
    )
    root = rekey_root(hash, application.rekey, unhex(vector["rekey_shared_secret"]))
    rekey = rekey_secrets(hash, root, unhex(vector["rekey_a"]), unhex(vector["rekey_b"]))
    got = {
        "th1": th1,
        "th2": th2,
        "hs": secrets.hs,
        "commit": secrets.commit,
        "hs_initiator": secrets.hs_initiator,
        "hs_responder": secrets.hs_responder,
        "ap_initiator": application.ap_initiator,
        "ap_responder": application.ap_responder,
        "session_id": application.session_id,
        "exporter": application.exporter,
        "rekey": application.rekey,
        "ap_initiator_1": next_secret(hash, application.ap_initiator),
        "chain_start_responder": start,
        "chain_start_initiator": chain_start_initiator(
            hash, hash.digest(t1 + proof_r), secrets.commit
        ),
        "chain_step": step,
        "chain_bound_responder": chain_bind(hash, unhex(expected["chain_start_responder"]), th2),
        "chain_rekeyed": chain_rekey(hash, step, rekey.commit),
        "rekey_root": root,
        "rekey_next_initiator": rekey.next_initiator,
        "rekey_next_responder": rekey.next_responder,
        "rekey_rcommit": rekey.commit,
        "rekey_rekey": rekey.rekey,
    }
    for inner in ("early", "master"):  # not stored, but covered by the later secrets
        del expected[inner]
    assert {name: value.hex() for name, value in got.items()} == expected


@vectors("schedule", fails=True)
def test_no_network_key(vector: Vector) -> None:
    with pytest.raises(CryptoError):
        handshake_secrets(HASHES[vector["hash"]], b"", b"", unhex(vector["network_key"]))


def offered(vector: Vector) -> EphemeralKey:
    private = unhex(vector["mlkem768_seed"] or "") + unhex(vector["x25519_private"])
    return KEX[vector["kex"]].from_private(private)


@vectors("exchange", fails=False)
def test_a_key_exchange(vector: Vector) -> None:
    key = offered(vector)
    assert key.share.hex() == vector["offered_share"]
    assert key.derive(unhex(vector["answered_share"])).hex() == vector["expected"]


@vectors("exchange", lambda vector: "answered_share" in vector, fails=True)
def test_a_refused_answer(vector: Vector) -> None:
    with pytest.raises(KeyExchangeError):
        offered(vector).derive(unhex(vector["answered_share"]))


@vectors("exchange", lambda vector: "answered_share" not in vector, fails=True)
def test_a_refused_offer(vector: Vector) -> None:
    with pytest.raises(KeyExchangeError):
        KEX[vector["kex"]].respond(unhex(vector["offered_share"]))


def stream_key(vector: Vector) -> tuple[StreamKey, bytes]:
    """Return the key at the vector's counter, and the associated data."""
    suite = Suite("x25519", "ed25519", vector["hash"], vector["cipher"], "chain")
    key = StreamKey(suite, unhex(vector["secret"]), vector["stream"])
    key.counter = int(vector["counter"])
    return key, vector["stream"].to_bytes(4, "big") + bytes((vector["form"],))


@vectors("stream-keys", fails=False)
def test_a_blob(vector: Vector) -> None:
    expected, inner = vector["expected"], unhex(vector["inner"])
    hash, secret = HASHES[vector["hash"]], unhex(vector["secret"])
    context = vector["stream"].to_bytes(4, "big")
    for name in ("key", "iv"):
        size = len(unhex(expected[name]))
        assert label(hash, secret, f"stream {name}", context, size).hex() == expected[name]
    key, associated_data = stream_key(vector)
    assert associated_data.hex() == expected["associated_data"]
    assert key.encrypt(inner, associated_data).hex() == expected["blob"]
    assert key.counter == int(vector["counter"]) + 1
    key, _ = stream_key(vector)
    assert key.decrypt(unhex(expected["blob"]), associated_data) == inner


@vectors("stream-keys", fails=True)
def test_a_refused_blob(vector: Vector) -> None:
    key, associated_data = stream_key(vector)
    with pytest.raises(DecryptError):
        key.decrypt(unhex(vector["blob"]), associated_data)


@vectors("seals", fails=False)
def test_a_seal(vector: Vector) -> None:
    hash, signing = HASHES[vector["hash"]], SIGNING[vector["signing"]]
    commit, chain, seal = (unhex(vector[name]) for name in ("commit", "chain", "seal"))
    assert seal_mask(hash, commit, chain, len(seal)).hex() == vector["expected"]["mask"]
    key = signing.load(unhex(vector["seed"]))
    assert key.public.hex() == vector["public"]
    verifier = signing.verifier(key.public)
    verifier.verify(unhex(vector["signature"]), unhex(vector["message"]))
    check_seal(verifier, hash, commit, chain, seal)
    made = make_seal(key, hash, commit, chain)
    check_seal(verifier, hash, commit, chain, made)
    assert made == seal or vector["signing"] in RANDOMISED


@vectors("seals", fails=True)
def test_a_refused_seal(vector: Vector) -> None:
    verifier = SIGNING[vector["signing"]].verifier(unhex(vector["public"]))
    with pytest.raises(SignatureError):
        check_seal(
            verifier,
            HASHES[vector["hash"]],
            unhex(vector["commit"]),
            unhex(vector["chain"]),
            unhex(vector["seal"]),
        )


@vectors("identity", of_kind("node-id"))
def test_a_node_id(vector: Vector) -> None:
    key = SIGNING[vector["algorithm"]].load(unhex(vector["seed"]))
    assert key.public.hex() == vector["public"]
    node_id = NodeId.of_key(vector["algorithm"], key.public)
    got = {"node_id": node_id.hex(), "text": node_id.text, "uuid": str(node_id.uuid)}
    assert got == vector["expected"]


@vectors("identity", of_kind("node-text"), fails=False)
def test_the_text_of_a_node_id(vector: Vector) -> None:
    node_id = NodeId(unhex(vector["node_id"]))
    assert {"text": node_id.text, "uuid": str(node_id.uuid)} == vector["expected"]
    assert NodeId.parse(node_id.text) == node_id


@vectors("identity", of_kind("node-text"), fails=True)
def test_no_text_of_a_node_id(vector: Vector) -> None:
    with pytest.raises(IdentityError):
        NodeId.parse(vector["text"])


@vectors("identity", of_kind("public-key"), fails=True)
def test_a_refused_public_key(vector: Vector) -> None:
    with pytest.raises(SignatureError):
        SIGNING[vector["algorithm"]].verifier(unhex(vector["public"]))


@vectors("identity", of_kind("signature"), fails=False)
def test_a_signature(vector: Vector) -> None:
    signing, message = SIGNING[vector["algorithm"]], unhex(vector["message"])
    signing.verifier(unhex(vector["public"])).verify(unhex(vector["signature"]), message)
    key = signing.load(unhex(vector["seed"]))
    assert key.public.hex() == vector["public"]
    made = key.sign(message)
    assert made.hex() == vector["signature"] or vector["algorithm"] in RANDOMISED


@vectors("identity", of_kind("signature"), fails=True)
def test_a_refused_signature(vector: Vector) -> None:
    verifier = SIGNING[vector["algorithm"]].verifier(unhex(vector["public"]))
    with pytest.raises(SignatureError):
        verifier.verify(unhex(vector["signature"]), unhex(vector["message"]))


@vectors("identity", of_kind("binding"))
def test_a_binding(vector: Vector) -> None:
    primary, further = (
        (vector[name]["algorithm"], unhex(vector[name]["public"]))
        for name in ("primary", "further")
    )
    signature = unhex(vector["expected"]["signature"])
    verifier = SIGNING[primary[0]].verifier(primary[1])
    verifier.verify(signature, unhex(vector["expected"]["message"]))
    identity = PublicIdentity([(*primary, None), (*further, signature)])
    assert identity.algorithms == (primary[0], further[0])


@vectors("identity", of_kind("cell"), fails=False)
def test_an_identity_cell(vector: Vector) -> None:
    identity = PublicIdentity.parse(read_array(decode(unhex(vector["input"])), IDENTITY_KEYS))
    assert identity.node_id.hex() == vector["expected"]["node_id"]
    assert sorted(identity.algorithms) == vector["expected"]["algorithms"]


@vectors("identity", of_kind("cell"), fails=True)
def test_a_refused_identity_cell(vector: Vector) -> None:
    with pytest.raises((IdentityError, LbmDecodeError)):
        PublicIdentity.parse(read_array(decode(unhex(vector["input"])), IDENTITY_KEYS))
