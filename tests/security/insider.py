"""A middle node that has a handshake's keys, but no identity's private key.

No attacker of the threat model has as much, so that only the signatures can cause a rejection.
Proofs are written with the reference implementation.
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
    """Return a pair that signs with `algorithm`, with fixed identities by default."""
    names = {**ONE_OF_EACH, "signing": (algorithm,)}
    return Pair(
        make_config(initiator or identity("initiator", algorithm), algorithms=names),
        make_config(responder or identity("responder", algorithm), algorithms=names),
    )


def signing_as(key: SigningKey, sign: Sign) -> SigningKey:
    """Return a signer with the same public key and another signing function."""
    return SigningKey(key.algorithm, bytes(32), key.public, sign)


class Insider:
    """The keys of one side's handshake, available after Hello and Reply."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake
        self._suite = Suite(**expect(handshake.suite).names())

    def open_proof(self, event: bytes, *, initiators: bool) -> tuple[Event, bytes]:
        """Return the content of a Proof and the signature in it."""
        opened = self._direction(initiators).read(event)
        return opened.event, opened.signature

    def proof(self, cells: Sequence[object], signer: Signer, *, initiators: bool) -> bytes:
        """Return the frame of a Proof that shows `cells` as its identity, signed by `signer`."""
        payload = cbor.encode_payload({CELLS["keys"]: list(cells), CELLS["node"]: {}})
        event = Event(0, 0, *TYPES["Proof"], payload)
        return self.in_place_of_the_proof(event, signer, initiators=initiators)

    def in_place_of_the_proof(self, event: Event, signer: Signer, *, initiators: bool) -> bytes:
        """Return the frame of any event under the keys of a Proof, as the first of its
        direction.
        """
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
        """Return the stored signature, whatever the message is."""
        return self._signature
