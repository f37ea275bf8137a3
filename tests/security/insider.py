"""Somebody in the middle who has got hold of a handshake's keys, though of nobody's identity.

One rule: more than any attacker of the threat model can have, so that what is refused is
refused by the signatures alone. Proofs are written with the reference implementation.
"""

from collections.abc import Sequence

from crypto.identity import Identity
from crypto.registry import SIGNING
from crypto.signing import Sign, SigningKey
from node.protocol.frames import frame
from node.protocol.handshake import Handshake, known
from tests.node.protocol.pair import Pair, make_config
from tests.reference import cbor
from tests.reference.sealing import Direction, Signer, Suite
from tests.reference.wire import CELLS, TYPES, Event, parse_inner
from tests.security.shapes import ONE_OF_EACH, identity

ALGORITHMS = tuple(SIGNING)


def meeting(
    algorithm: str, initiator: Identity | None = None, responder: Identity | None = None
) -> Pair:
    """A pair that will sign with `algorithm`; fixed identities where none is given."""
    names = {**ONE_OF_EACH, "signing": (algorithm,)}
    return Pair(
        make_config(initiator or identity("initiator", algorithm), algorithms=names),
        make_config(responder or identity("responder", algorithm), algorithms=names),
    )


def signing_as(key: SigningKey, sign: Sign) -> SigningKey:
    """The same public key with another way to sign."""
    return SigningKey(key.algorithm, bytes(32), key.public, sign)


class Insider:
    """The keys of one side's handshake, once Hello and Reply have passed."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake
        self._suite = Suite(**known(handshake.suite).names())

    def open_proof(self, event: bytes, *, initiators: bool) -> tuple[Event, bytes]:
        """A Proof as it is inside, and the signature that it carries."""
        opened = self._direction(initiators).read(event)
        return opened.event, opened.signature

    def proof(self, cells: Sequence[object], signer: Signer, *, initiators: bool) -> bytes:
        """The frame of a Proof that shows `cells` as its identity, signed by `signer`."""
        payload = cbor.encode_payload({CELLS["keys"]: list(cells), CELLS["node"]: {}})
        inner = Event(0, 0, *TYPES["Proof"], payload).inner
        assert parse_inner(0, inner).type == TYPES["Proof"]
        return frame(self._direction(initiators).write(0, inner, signer, sealed=True))

    def _direction(self, initiators: bool) -> Direction:
        handshake = self._handshake
        secrets = known(handshake.secrets)
        secret = secrets.hs_initiator if initiators else secrets.hs_responder
        chain = handshake.initiator_chain() if initiators else handshake.responder_chain()
        return Direction(self._suite, secret, chain, secrets.commit)


class Stolen:
    """A signer that has one signature and no key."""

    def __init__(self, signature: bytes) -> None:
        self._signature = signature

    def sign(self, message: bytes, /) -> bytes:
        """The one it has, whatever the message."""
        return self._signature
