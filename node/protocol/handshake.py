"""What both sides of a handshake share: transcript, secrets, Proofs (section 5).

Hashes and signatures cover the bytes as they came, never a re-encoding.
The two sides' own steps are in initiator.py and responder.py; whom to trust, and what
is sent when a handshake fails, is not known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from parley._crypto.errors import IdentityError
from parley._crypto.identity import PublicIdentity
from parley._crypto.registry import Suite
from parley._crypto.schedule import (
    ApplicationSecrets,
    HandshakeSecrets,
    chain_bind,
    chain_start_initiator,
    chain_start_responder,
    handshake_secrets,
)
from parley._lbm.codec import Value
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import CONNECTION, PROOF, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import RemoteProtocolError, violation
from parley._node.protocol.event import Event, parse_raw
from parley._node.protocol.limits import FRAME_HEADER_SIZE, Limits, control_buffer, frame_limit
from parley._node.protocol.proofs import keep, read_proof, refuse
from parley._node.protocol.sealing import Receiver, Sender

T = TypeVar("T")


@dataclass(slots=True)  # not frozen: its many fields would take six times as long to set
class Agreed:
    """What a finished handshake leaves. All but roles and limits is None in plaintext.

    `session_id` has 32 bytes, `exporter` the hash's size. `t1`, the Proof events and
    `hs` are what a journal needs to prove the session; nobody else is told them. `resume` is
    for how many seconds the session may be without a transport (section 17; 0: not at all).
    """

    local_role: str
    remote_role: str
    limits: Limits
    suite: Suite | None = None
    identity: PublicIdentity | None = None
    info: Mapping[str, Value] = field(default_factory=dict)
    session_id: bytes | None = None
    commit: bytes | None = field(default=None, repr=False)
    exporter: bytes | None = field(default=None, repr=False)
    rekey: bytes | None = field(default=None, repr=False)
    t1: bytes = field(default=b"", repr=False)
    responder_proof: bytes = field(default=b"", repr=False)
    initiator_proof: bytes = field(default=b"", repr=False)
    hs: bytes | None = field(default=None, repr=False)
    resume: float = 0.0

    def without_secrets(self) -> "Agreed":
        """The same for those who need not know: only `exporter` is kept of the keys."""
        return Agreed(
            local_role=self.local_role,
            remote_role=self.remote_role,
            limits=self.limits,
            suite=self.suite,
            identity=self.identity,
            info=self.info,
            session_id=self.session_id,
            exporter=self.exporter,
            resume=self.resume,
        )


# What is known where a network key is set on one side only.
NO_NETWORK_KEY_THERE: Final = (
    "the other side does not have the network key of this node, or the bytes were changed"
)
NO_NETWORK_KEY_HERE: Final = "the other side has a network key, and this node has none"


class Handshake:
    """The state of one handshake; `Initiator` and `Responder` add their steps."""

    def __init__(self, config: CoreConfig, random: bytes) -> None:
        self.config = config
        self.random = random
        self.transcript = b""
        self.suite: Suite | None = None
        self.limits: Limits | None = None
        self.resume_ms = 0  # what was agreed
        self.remote_role = ""
        self.identity: PublicIdentity | None = None
        self.info: Mapping[str, Value] = {}
        self.sender: Sender | None = None
        self.receiver: Receiver | None = None
        self.secrets: HandshakeSecrets | None = None
        self._th1 = b""
        self.responder_proof = b""
        self.initiator_proof = b""
        # The responder's Proof could be opened, or the initiator's: both chains are known.
        self.proof_opened = False

    # The key schedule, in the order of the flights.

    def derive(self, suite: Suite, shared_secret: bytes) -> None:
        """After Hello and Reply: the secrets of the Proofs."""
        self.suite = suite
        hash = suite.hash_algorithm
        self._th1 = hash.digest(self.transcript)
        self.secrets = handshake_secrets(hash, self._th1, shared_secret, self.config.network_key)

    def responder_chain(self) -> bytes:
        """The responder's first chain value."""
        suite, secrets = self._derived()
        return chain_start_responder(suite.hash_algorithm, self._th1, secrets.commit)

    def initiator_chain(self) -> bytes:
        """The initiator's first chain value, which covers the responder's Proof."""
        suite, secrets = self._derived()
        hash = suite.hash_algorithm
        covered = hash.digest(self.transcript + self.responder_proof)
        return chain_start_initiator(hash, covered, secrets.commit)

    def make_sender(self, secret: bytes, chain: bytes) -> Sender:
        """Our direction, under the key of our Proof."""
        suite, secrets = self._derived()
        key = self.config.identity.key(suite.signing)
        self.sender = Sender(suite, secret, chain, secrets.commit, key)
        return self.sender

    def make_receiver(self, secret: bytes, chain: bytes) -> Receiver:
        """The other side's direction, under the key of its Proof."""
        suite, secrets = self._derived()
        limits = self.agreed_limits()
        self.receiver = Receiver(
            suite, secret, chain, secrets.commit, limits.seal_events, _admit_none
        )
        return self.receiver

    def bind(self) -> ApplicationSecrets:
        """After both Proofs: bind both chains to the transcript, go to epoch 0."""
        suite, secrets = self._derived()
        hash = suite.hash_algorithm
        th2 = hash.digest(self.transcript + self.responder_proof + self.initiator_proof)
        application = secrets.application(th2)
        for direction in (known(self.sender), known(self.receiver)):
            direction.chain.value = chain_bind(hash, direction.chain.value, th2)
            direction.epoch = -1  # the Proofs' key was not an epoch
        return application

    # Proofs.

    def proof_frame(self) -> bytes:
        """Our Proof, sealed and framed."""
        payload = self.config.proof_payload
        return known(self.sender).protect(0, 0, CONNECTION, PROOF, payload, True)

    def open_proof(self, event: bytes) -> None:
        """Open and verify the other side's Proof.

        Raises:
            RemoteProtocolError: `bad-record` if it does not open, otherwise
                `authentication-failed`, whatever is wrong with it.
        """
        receiver, suite = known(self.receiver), known(self.suite)
        try:
            opened, seal = receiver.open(event, verify=False)
        except RemoteProtocolError as unopened:
            if self.config.network_key is None or unopened.code != CloseCode.BAD_RECORD:
                raise
            # A node with another key would have answered nothing at all.
            raise RemoteProtocolError(unopened.code, NO_NETWORK_KEY_THERE) from unopened
        if opened[:4] != (0, 0, CONNECTION, PROOF):
            other = f"event {opened.category}/{opened.subcategory} on stream {opened.stream}"
            raise _refused(f"{other} in place of the Proof")
        self.keep_proof(event)
        self.proof_opened = True
        if seal is None:
            raise _refused("a Proof without seal")
        try:
            proof = read_proof(opened.payload)
        except (LbmDecodeError, IdentityError) as malformed:
            raise _refused(str(malformed)) from malformed
        try:
            receiver.verifier = proof.identity.verifier(suite.signing)
            receiver.verify(seal)
        except (IdentityError, RemoteProtocolError) as error:
            refuse(opened.payload, proof)
            missing = isinstance(error, IdentityError)
            reason = str(error) if missing else "the Proof's signature is wrong"
            raise _refused(reason) from error
        keep(opened.payload, proof)
        if proof.identity.node_id == self.config.identity.node_id:
            raise _refused(f"the peer has our own node id, {proof.identity.node_id}")
        self.identity = proof.identity
        self.info = proof.info()

    def keep_proof(self, event: bytes) -> None:
        """Remember the other side's Proof event for the transcript."""
        raise TypeError(f"{type(self).__name__} keeps no Proof")

    # What the connection asks for.

    def agreed_limits(self) -> Limits:
        """The limits that hold; known after Hello and Reply."""
        return known(self.limits)

    def frame_limit(self) -> int:
        """The longest event from now on, in bytes."""
        sealing, size = self._seals()
        return frame_limit(self.agreed_limits().max_payload, sealing=sealing, signature_size=size)

    def control_buffer(self) -> int:
        """Bytes of Pongs, Windows and Resets that may wait for the peer to read."""
        sealing, size = self._seals()
        return control_buffer(self.agreed_limits(), sealing=sealing, signature_size=size)

    def _seals(self) -> tuple[str | None, int]:
        """The sealing and the size of a signature; None and 0 without encryption."""
        suite = self.suite
        return (suite.sealing, suite.signing_algorithm.signature_size) if suite else (None, 0)

    def agreed(self, application: ApplicationSecrets | None) -> Agreed:
        """The result, encrypted or (`application` is None) not."""
        if application is None:
            return Agreed(self.config.role, self.remote_role, self.agreed_limits())
        suite, secrets = self._derived()
        return Agreed(
            local_role=self.config.role,
            remote_role=self.remote_role,
            limits=self.agreed_limits(),
            suite=suite,
            identity=self.identity,
            info=self.info,
            session_id=application.session_id,
            commit=secrets.commit,
            exporter=application.exporter,
            rekey=application.rekey,
            t1=bytes(self.transcript),
            responder_proof=self.responder_proof,
            initiator_proof=self.initiator_proof,
            hs=secrets.hs,
            resume=self.resume_ms / 1000,
        )

    def _derived(self) -> tuple[Suite, HandshakeSecrets]:
        return known(self.suite), known(self.secrets)


def _admit_none(stream: int) -> None:
    if stream:
        raise RemoteProtocolError(CloseCode.BAD_RECORD, f"stream {stream} before the Proofs")


def known(value: T | None) -> T:
    """A part of the handshake that the order of its steps has made by now."""
    if value is None:
        raise TypeError("a step of the handshake was taken out of turn")
    return value


def raw_handshake_event(data: bytes) -> Event:
    """Read a raw event that must be of the handshake: category 1, stream 0, async id 0.

    Raises:
        RemoteProtocolError: `protocol-error`.
    """
    event = parse_raw(data)
    if event.category != CONNECTION or event.stream or event.async_id:
        place = f"stream {event.stream}, async id {event.async_id}"
        raise violation(f"event {event.category}/{event.subcategory} ({place}) in a handshake")
    return event


def without_frame(framed: bytes) -> bytes:
    """The event of a frame of our own making."""
    return framed[FRAME_HEADER_SIZE:]


def _refused(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(CloseCode.AUTHENTICATION_FAILED, reason)
