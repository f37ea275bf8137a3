"""The key schedule of section 5, the hash chain's values and the rekey of section 6.

Stateless functions of bytes, independent of sockets and of the signing identity.
"""

from dataclasses import dataclass, field

from tests.reference.primitives import HASH_SIZES, derive, digest, extract


@dataclass(frozen=True)
class HandshakeKeys:
    """Everything that follows from T1, the shared secret and the network key."""

    hash: str
    t1: bytes = field(repr=False)
    th1: bytes
    early: bytes = field(repr=False)
    hs: bytes = field(repr=False)
    commit: bytes = field(repr=False)
    hs_initiator: bytes = field(repr=False)
    hs_responder: bytes = field(repr=False)


@dataclass(frozen=True)
class ApplicationKeys:
    """Everything that follows once both Proofs are there."""

    th2: bytes
    master: bytes = field(repr=False)
    ap_initiator: bytes = field(repr=False)
    ap_responder: bytes = field(repr=False)
    session_id: bytes
    exporter: bytes = field(repr=False)
    rekey: bytes = field(repr=False)


@dataclass(frozen=True)
class RekeyKeys:
    """Everything that follows from one rekey."""

    root: bytes = field(repr=False)
    next_initiator: bytes = field(repr=False)
    next_responder: bytes = field(repr=False)
    rcommit: bytes
    rekey: bytes = field(repr=False)


def handshake_keys(
    hash_name: str, t1: bytes, shared: bytes, network_key: bytes | None
) -> HandshakeKeys:
    """`t1` is the concatenation of event bytes without frame lengths."""
    size = HASH_SIZES[hash_name]
    th1 = digest(hash_name, t1)
    early = extract(hash_name, bytes(size), network_key if network_key else bytes(32))
    hs = extract(hash_name, derive(hash_name, early, "derived", b"", size), shared)
    return HandshakeKeys(
        hash=hash_name,
        t1=t1,
        th1=th1,
        early=early,
        hs=hs,
        commit=derive(hash_name, hs, "commit", th1, size),
        hs_initiator=derive(hash_name, hs, "hs initiator", th1, size),
        hs_responder=derive(hash_name, hs, "hs responder", th1, size),
    )


def application_keys(
    keys: HandshakeKeys, responder_proof: bytes, initiator_proof: bytes
) -> ApplicationKeys:
    """`responder_proof`, `initiator_proof`: the whole encrypted events."""
    name, size = keys.hash, HASH_SIZES[keys.hash]
    th2 = digest(name, keys.t1 + responder_proof + initiator_proof)
    master = extract(name, derive(name, keys.hs, "derived", b"", size), bytes(size))
    return ApplicationKeys(
        th2=th2,
        master=master,
        ap_initiator=derive(name, master, "ap initiator", th2, size),
        ap_responder=derive(name, master, "ap responder", th2, size),
        session_id=derive(name, master, "session", th2, 32),
        exporter=derive(name, master, "exporter", th2, size),
        rekey=derive(name, master, "rekey", b"", size),
    )


def chain_start_responder(keys: HandshakeKeys) -> bytes:
    """chain_r[-1]."""
    return digest(keys.hash, b"parley1 chain" + b"\x01" + keys.th1 + keys.commit)


def chain_start_initiator(keys: HandshakeKeys, responder_proof: bytes) -> bytes:
    """Return chain_i[-1]. It covers the responder's Proof, so the initiator signs the identity of
    its peer.
    """
    seen = digest(keys.hash, keys.t1 + responder_proof)
    return digest(keys.hash, b"parley1 chain" + b"\x00" + seen + keys.commit)


def chain_step(hash_name: str, value: bytes, stream: int, blob: bytes) -> bytes:
    """d[n] from d[n-1]."""
    return digest(hash_name, value + stream.to_bytes(4) + blob)


def chain_bind(hash_name: str, value: bytes, th2: bytes) -> bytes:
    """The replacement of both directions' values after both Proofs."""
    return digest(hash_name, b"parley1 chain" + b"\x02" + value + th2)


def chain_rekey(hash_name: str, value: bytes, rcommit: bytes) -> bytes:
    """The replacement directly after a KeyUpdate that has cell 33."""
    return digest(hash_name, b"parley1 chain" + b"\x03" + value + rcommit)


def updated(hash_name: str, secret: bytes) -> bytes:
    """ap[e+1] of a plain KeyUpdate."""
    return derive(hash_name, secret, "update", b"", HASH_SIZES[hash_name])


def rekey_keys(hash_name: str, rekey: bytes, shared: bytes, a: bytes, b: bytes) -> RekeyKeys:
    """`a`, `b`: the chain values right after the offer and right after the answer."""
    size = HASH_SIZES[hash_name]
    root = extract(hash_name, rekey, shared)
    return RekeyKeys(
        root=root,
        next_initiator=derive(hash_name, root, "ap initiator", a + b, size),
        next_responder=derive(hash_name, root, "ap responder", a + b, size),
        rcommit=derive(hash_name, root, "commit", a + b, size),
        rekey=derive(hash_name, root, "rekey", b"", size),
    )
