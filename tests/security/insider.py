"""Somebody in the middle who has got hold of a handshake's keys, though of nobody's identity.

More than any attacker of the threat model can have, so that what is refused is
refused by the signatures alone. Proofs are written with the reference implementation.
"""

from collections.abc import Sequence

from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._crypto.signing import Sign, SigningKey
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import Handshake, expect
from tests.node.protocol.pair import Pair, make_config
from tests.reference import cbor
from tests.reference.sealing import Direction, Signer, Suite
from tests.reference.wire import CELLS, TYPES, Event
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
        self._suite = Suite(**expect(handshake.suite).names())

    def open_proof(self, event: bytes, *, initiators: bool) -> tuple[Event, bytes]:
        """A Proof as it is inside, and the signature that it carries."""
        opened = self._direction(initiators).read(event)
        return opened.event, opened.signature

    def proof(self, cells: Sequence[object], signer: Signer, *, initiators: bool) -> bytes:
        """The frame of a Proof that shows `cells` as its identity, signed by `signer`."""
        payload = cbor.encode_payload({CELLS["keys"]: list(cells), CELLS["node"]: {}})
        event = Event(0, 0, *TYPES["Proof"], payload)
        return self.in_place_of_the_proof(event, signer, initiators=initiators)

    def in_place_of_the_proof(self, event: Event, signer: Signer, *, initiators: bool) -> bytes:
        """The frame of any event under the keys of a Proof, as the first of its direction."""
        direction = self._direction(initiators)
        return frame(direction.write(event.stream, event.inner, signer, sealed=True))

    def _direction(self, initiators: bool) -> Direction:
        handshake = self._handshake
        secrets = expect(handshake.secrets)
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
