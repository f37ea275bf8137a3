"""The key schedule, rekeys and key updates (docs/protocol.md sections 5 and 6).

All functions are pure: they derive secrets from secrets and transcript hashes.
"""

import hmac
from dataclasses import dataclass, field
from functools import cache

from parley._crypto.errors import CryptoError
from parley._crypto.hashing import SHA256, HashAlgorithm, extract, label

NETWORK_KEY_SIZE = 32
SESSION_ID_SIZE = 32

HELLO_LABEL = b"parley1 hello"
RESUME_LABEL = b"parley1 resume hello"
_CHAIN = b"parley1 chain"
_INITIATOR, _RESPONDER, _BIND, _REKEY = b"\x00", b"\x01", b"\x02", b"\x03"


# Not frozen, like the next class: creating it would take six times as long in each handshake.
@dataclass(slots=True, eq=False)
class HandshakeSecrets:
    """The secrets of the key exchange. `commit` is still needed after the handshake."""

    hash: HashAlgorithm = field(repr=False)
    hs: bytes = field(repr=False)
    commit: bytes = field(repr=False)
    hs_initiator: bytes = field(repr=False)
    hs_responder: bytes = field(repr=False)

    def application(self, th2: bytes) -> "ApplicationSecrets":
        """Return the secrets after both Proofs; `th2` is the hash of T2."""
        return application_secrets(self.hash, self.hs, th2)


@dataclass(slots=True, eq=False)
class ApplicationSecrets:
    """The secrets of epoch 0 of both directions. The session ID (32 bytes) is public."""

    ap_initiator: bytes = field(repr=False)
    ap_responder: bytes = field(repr=False)
    session_id: bytes
    exporter: bytes = field(repr=False)
    rekey: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class RekeySecrets:
    """The secrets of a rekey: the next secret of each direction, the commitment, and the next
    `rekey`.
    """

    next_initiator: bytes = field(repr=False)
    next_responder: bytes = field(repr=False)
    commit: bytes = field(repr=False)
    rekey: bytes = field(repr=False)


def check_network_key(network_key: bytes) -> None:
    """Raise CryptoError unless the key has 32 bytes that are not all zero."""
    if len(network_key) != NETWORK_KEY_SIZE or not any(network_key):
        raise CryptoError(
            f"invalid network key: expected {NETWORK_KEY_SIZE} bytes that are not all zero"
        )


def handshake_secrets(
    hash: HashAlgorithm, th1: bytes, shared_secret: bytes, network_key: bytes | None
) -> HandshakeSecrets:
    """Return the secrets after Hello and Reply; `th1` is the hash of T1.

    Raises:
        CryptoError: the network key has a wrong size or is all zero.
    """
    if network_key is not None:
        check_network_key(network_key)
    size = hash.size
    salt = _open_salt(hash) if network_key is None else _early_salt(hash, network_key)
    hs = extract(hash, salt, shared_secret)
    return HandshakeSecrets(
        hash=hash,
        hs=hs,
        commit=commitment(hash, hs, th1),
        hs_initiator=label(hash, hs, "hs initiator", th1, size),
        hs_responder=label(hash, hs, "hs responder", th1, size),
    )


def commitment(hash: HashAlgorithm, hs: bytes, th1: bytes) -> bytes:
    """Return `commit`, which commits to `hs` without revealing it."""
    return label(hash, hs, "commit", th1, hash.size)


def application_secrets(hash: HashAlgorithm, hs: bytes, th2: bytes) -> ApplicationSecrets:
    """Derive the secrets after both Proofs from `hs`; `th2` is the hash of T2."""
    size = hash.size
    master = extract(hash, label(hash, hs, "derived", b"", size), bytes(size))
    return ApplicationSecrets(
        ap_initiator=label(hash, master, "ap initiator", th2, size),
        ap_responder=label(hash, master, "ap responder", th2, size),
        session_id=label(hash, master, "session", th2, SESSION_ID_SIZE),
        exporter=label(hash, master, "exporter", th2, size),
        rekey=label(hash, master, "rekey", b"", size),
    )


def _early_salt(hash: HashAlgorithm, network_key: bytes) -> bytes:
    early = extract(hash, bytes(hash.size), network_key)
    return label(hash, early, "derived", b"", hash.size)


@cache  # without a network key it isn't secret and always the same
def _open_salt(hash: HashAlgorithm) -> bytes:
    return _early_salt(hash, bytes(NETWORK_KEY_SIZE))


def chain_start_initiator(hash: HashAlgorithm, th1_with_proof: bytes, commit: bytes) -> bytes:
    """Return chain_i[-1], the initial chain value of the initiator's direction (section 6).

    `th1_with_proof` is H(T1 || the responder's Proof event).

    Example:

        from parley.protocol import HashChain, chain_start_initiator

        hash = peer.suite.hash_algorithm
        start = chain_start_initiator(hash, bytes(hash.size), bytes(hash.size))
        chain = HashChain(hash, start)
    """
    return hash.digest(_CHAIN + _INITIATOR + th1_with_proof + commit)


def chain_start_responder(hash: HashAlgorithm, th1: bytes, commit: bytes) -> bytes:
    """Return chain_r[-1], the initial chain value of the responder's direction (section 6).

    `th1` is H(T1), the hash of Hello and Reply.

    Example:

        from parley.protocol import HashChain, chain_start_responder

        hash = peer.suite.hash_algorithm
        chain = HashChain(hash, chain_start_responder(hash, bytes(hash.size), bytes(hash.size)))
    """
    return hash.digest(_CHAIN + _RESPONDER + th1 + commit)


def chain_bind(hash: HashAlgorithm, d: bytes, th2: bytes) -> bytes:
    """Return the chain value of a direction after both Proofs; `d` is the value before (section 6).

    `th2` is the hash of the transcript including both Proofs.

    Example:

        from parley.protocol import HashChain, chain_bind

        hash = peer.suite.hash_algorithm
        chain = HashChain(hash, bytes(hash.size))
        chain.value = chain_bind(hash, chain.value, th2=bytes(hash.size))
    """
    return hash.digest(_CHAIN + _BIND + d + th2)


def chain_rekey(hash: HashAlgorithm, d: bytes, rcommit: bytes) -> bytes:
    """Return the chain value of a direction directly after the KeyUpdate that completes a rekey."""
    return hash.digest(_CHAIN + _REKEY + d + rcommit)


def next_secret(hash: HashAlgorithm, ap: bytes) -> bytes:
    """Return ap[e+1] of a plain key update. ap[e] can't be computed from it."""
    return label(hash, ap, "update", b"", hash.size)


def rekey_root(hash: HashAlgorithm, rekey: bytes, shared_secret: bytes) -> bytes:
    """Return the `root` of a rekey, from which its other secrets are derived with two chain
    values.
    """
    return extract(hash, rekey, shared_secret)


def rekey_secrets(hash: HashAlgorithm, root: bytes, a: bytes, b: bytes) -> RekeySecrets:
    """Derive the secrets of a rekey from its `root`.

    `a` is the chain value of the offer's sender directly after the offer, `b` that of the answer's
    sender directly after the answer. `next_initiator` is for the direction of the connection's
    initiator.
    """
    size = hash.size
    return RekeySecrets(
        next_initiator=label(hash, root, "ap initiator", a + b, size),
        next_responder=label(hash, root, "ap responder", a + b, size),
        commit=label(hash, root, "commit", a + b, size),
        rekey=label(hash, root, "rekey", b"", size),
    )


def network_mac(
    network_key: bytes, encoded_map_without_cell_12: bytes, label: bytes = HELLO_LABEL
) -> bytes:
    """Return the value of cell 12: HMAC-SHA256, 32 bytes, independent of the negotiated hash.
    `label` depends on the type of event.

    Verify it with `check_network_mac`, which takes constant time.
    """
    check_network_key(network_key)
    return SHA256.hmac(network_key, label + encoded_map_without_cell_12)


def check_network_mac(
    network_key: bytes,
    encoded_map_without_cell_12: bytes,
    mac: bytes,
    label: bytes = HELLO_LABEL,
) -> bool:
    """Return whether `mac` is the right value of cell 12, in constant time."""
    return hmac.compare_digest(network_mac(network_key, encoded_map_without_cell_12, label), mac)
