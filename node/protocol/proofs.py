"""What Proofs show: an identity and node information; those of peers that come again are kept.

What is kept passed its seal, and whoever shows it without a right seal is
treated as long as a stranger is: who was here lately is nobody's business. The outcome
depends on a Proof's bytes alone; no signature's outcome is kept.
"""

from threading import Lock
from typing import Final, NamedTuple, cast

from parley._crypto.identity import PublicIdentity
from parley._lbm import keys
from parley._lbm.cells import read_array, read_text_map
from parley._lbm.codec import Value, decode_value, encode_value
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.hello import decode_handshake
from parley._node.protocol.limits import NODE_INFO_SIZE

# To check a key costs as much as to verify a signature; each takes 16 KiB at most.
KEPT_PROOFS: Final = 128

kept_proofs: "dict[bytes, Proof]" = {}  # the one that was met longest ago first
_lock: Final = Lock()  # nodes may run in several threads


class Proof(NamedTuple):
    """What the payload of a Proof shows; `kept` says that it was met before."""

    identity: PublicIdentity
    encoded_info: bytes
    kept: bool = False

    def info(self) -> dict[str, Value]:
        """The node information, decoded anew: an application may change what it gets."""
        return cast(dict[str, Value], decode_value(self.encoded_info))


def read_proof(payload: bytes) -> Proof:
    """What a Proof shows, its keys checked. Follow with `keep` or `refuse`.

    Raises:
        LbmDecodeError, IdentityError: malformed, weak, bound wrongly, or too much.
    """
    return kept_proofs.get(payload) or _check(payload)


def keep(payload: bytes, proof: Proof) -> None:
    """The Proof's seal is right: its keys need no check when they come again."""
    met = proof if proof.kept else proof._replace(kept=True)
    with _lock:
        kept_proofs.pop(payload, None)
        kept_proofs[payload] = met
        if len(kept_proofs) > KEPT_PROOFS:
            del kept_proofs[next(iter(kept_proofs))]


def refuse(payload: bytes, proof: Proof) -> None:
    """Its seal is wrong: take the time that checking it would have taken."""
    if proof.kept:
        _check(payload)


def _check(payload: bytes) -> Proof:
    cells = decode_handshake(payload)
    identity = PublicIdentity.parse(read_array(cells, keys.IDENTITY_KEYS))
    info = encode_value(read_text_map(cells, keys.NODE_INFO, default={}))
    if len(info) > NODE_INFO_SIZE:
        raise LbmDecodeError(f"{len(info)} bytes of node information; at most {NODE_INFO_SIZE}")
    return Proof(identity, info)
