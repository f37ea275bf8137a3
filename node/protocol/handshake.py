"""The handshake (docs/protocol.md section 5): negotiation, key schedule, Proofs, and the steps of
each side.

Hashes and signatures cover the received bytes, never a re-encoding. The application decides whether
to trust the peer between `open_proof` and `finish`.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple, TypeVar, cast

from parley._crypto.errors import IdentityError, KeyExchangeError, UnknownAlgorithmError
from parley._crypto.identity import PublicIdentity
from parley._crypto.key_exchange import EphemeralKey
from parley._crypto.key_schedule import (
    HELLO_LABEL,
    RESUME_LABEL,
    ApplicationSecrets,
    HandshakeSecrets,
    chain_start_initiator,
    chain_start_responder,
    check_network_mac,
    handshake_secrets,
)
from parley._crypto.registry import KEX, PARAMETERS, Suite
from parley._lbm import keys
from parley._lbm.codec import Value, decode_value, encode, encode_value
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import read_array, read_bytes, read_text_map
from parley._node.protocol.codes import (
    CLOSE,
    CONNECTION,
    HELLO,
    PROOF,
    REJECT,
    REPLY,
    RETRY,
    CloseCode,
)
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    NoCommonAlgorithmError,
    RejectedError,
    RemoteProtocolError,
    violation,
)
from parley._node.protocol.event import Event, handshake_event, parse_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake_messages import (
    MAY_CHANGE,
    Hello,
    ReplyRead,
    check_version,
    decode_handshake,
    hello_payload,
    parse_code_and_text,
    parse_hello,
    parse_reply,
    parse_retry,
    reply_payload,
    retry_payload,
)
from parley._node.protocol.limits import (
    FRAME_HEADER_SIZE,
    HANDSHAKE_EVENT_SIZE,
    NODE_INFO_SIZE,
    PRESENTED_BYTES,
    PRESENTED_STATEMENTS,
    Limits,
    control_buffer,
    frame_limit,
    sealed_overhead,
)
from parley._node.protocol.record_layer import RecordReader, RecordWriter
from parley._node.protocol.resumption import ResumeRequest, read_resume

Offer = Mapping[str, Sequence[str]]


class Choice(NamedTuple):
    """The responder's choice. `retry` means that the initiator hasn't sent a share for the kex
    yet.
    """

    suite: Suite
    retry: bool


def choose(config: CoreConfig, offer: Offer, shared: Mapping[str, bytes]) -> Choice:
    """Choose a suite from `offer` in the responder's order of preference; `shared` are the received
    kex shares.

    Raises:
        NoCommonAlgorithmError: the first parameter without a common algorithm.
    """
    picked: dict[str, str] = {}
    retry = False
    for parameter in PARAMETERS:
        common = [name for name in config.names(parameter) if name in offer[parameter]]
        if not common:
            raise NoCommonAlgorithmError(parameter)
        picked[parameter] = common[0]
        if parameter == "kex":
            ready = [name for name in common if name in shared]
            retry = not ready
            picked[parameter] = (ready or common)[0]
    return Choice(Suite.of(picked), retry)


# A cache, because checking a key costs as much as verifying a signature. At most 24 KiB per entry.
KEPT_PROOFS: Final = 128

kept_proofs: "dict[bytes, Proof]" = {}  # in order of use, the least recent first
_lock: Final = Lock()  # because nodes can run in several threads


class Proof(NamedTuple):
    """The payload of a Proof. `statements` are not checked. `kept` means that a Proof with the same
    bytes was verified before.
    """

    identity: PublicIdentity
    encoded_info: bytes
    statements: tuple[bytes, ...] = ()
    kept: bool = False

    def info(self) -> dict[str, Value]:
        """Decode the node information; each call returns a new object."""
        return cast(dict[str, Value], decode_value(self.encoded_info))


def read_proof(payload: bytes) -> Proof:
    """Parse a Proof and check its keys. Call `keep` or `refuse` afterwards.

    Raises:
        LbmDecodeError: the payload is malformed or too long.
        IdentityError: a key is weak, or the keys are not bound to each other.
    """
    return kept_proofs.get(payload) or _check(payload)


def keep(payload: bytes, proof: Proof) -> None:
    """Cache a verified Proof, so that its keys aren't checked again."""
    met = proof if proof.kept else proof._replace(kept=True)
    with _lock:
        kept_proofs.pop(payload, None)
        kept_proofs[payload] = met
        if len(kept_proofs) > KEPT_PROOFS:
            del kept_proofs[next(iter(kept_proofs))]


def refuse(payload: bytes, proof: Proof) -> None:
    """Spend the time that checking the keys takes, so that timing doesn't reveal whether a Proof is
    cached.
    """
    if proof.kept:
        _check(payload)


def _check(payload: bytes) -> Proof:
    cells = decode_handshake(payload)
    identity = PublicIdentity.parse(read_array(cells, keys.IDENTITY_KEYS))
    info = encode_value(read_text_map(cells, keys.NODE_INFO, default={}))
    if len(info) > NODE_INFO_SIZE:
        raise LbmDecodeError(f"{len(info)} bytes of node information; at most {NODE_INFO_SIZE}")
    return Proof(identity, info, read_statements(cells))


def read_statements(cells: Mapping[int, Value]) -> tuple[bytes, ...]:
    """Return the statements in the cells of a Proof, unchecked (rule 22.37).

    Raises:
        LbmDecodeError: there are too many, or they are too long or not byte strings.
    """
    statements = read_array(cells, keys.STATEMENTS, default=[])
    if not {bytes}.issuperset(map(type, statements)):
        raise LbmDecodeError("a Proof with statements that are not byte strings")
    count, size = len(statements), sum(map(len, statements))
    if count > PRESENTED_STATEMENTS or size > PRESENTED_BYTES:
        raise LbmDecodeError(
            f"a Proof with {count} statements of {size} bytes; at most {PRESENTED_STATEMENTS} and "
            f"{PRESENTED_BYTES}"
        )
    return tuple(statements)


T = TypeVar("T")


@dataclass(slots=True)  # not frozen, because setting its many fields would take six times as long
class Agreed:
    """The result of a handshake. Without encryption, only roles and limits are set.

    `session_id` has 32 bytes; `exporter` has the size of the hash. With `t1`, the Proof events and
    `hs`, a journal can prove the session later. `resume` is how many seconds the session may be
    without a transport (section 17; 0: it can't be resumed).

    Example:

        from parley import Identity, Node
        from parley.protocol import Agreed, Observer

        class Sessions(Observer):
            def session_started(self, agreed: Agreed, initiator: bool, checkpoint) -> None:
                print(agreed.session_id.hex(), agreed.suite)

        watched = Node(Identity.create(), observer=Sessions)
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
        """Return a copy in which `exporter` is the only secret."""
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


# Reasons in the log if only one side has a network key.
NO_NETWORK_KEY_THERE: Final = (
    "the peer does not have this node's network key, or bytes were modified in transit"
)
NO_NETWORK_KEY_HERE: Final = "the peer uses a network key, but this node has none; set network_key"


class Handshake:
    """The state of one handshake. `Initiator` and `Responder` implement the two sides."""

    def __init__(self, config: CoreConfig, random: bytes) -> None:
        self.config = config
        self.random = random
        self.transcript = b""
        self.suite: Suite | None = None
        self.limits: Limits | None = None
        self.resume_ms = 0  # agreed with the peer
        self.remote_role = ""
        self.identity: PublicIdentity | None = None
        self.info: Mapping[str, Value] = {}
        self.statements: tuple[bytes, ...] = ()
        self.sender: RecordWriter | None = None
        self.receiver: RecordReader | None = None
        self.secrets: HandshakeSecrets | None = None
        self._th1 = b""
        self.responder_proof = b""
        self.initiator_proof = b""
        # Set once the peer's Proof was decrypted, so that both chains are known.
        self.proof_opened = False

    # The key schedule, in the order of the messages.

    def derive(self, suite: Suite, shared_secret: bytes) -> None:
        """Derive the secrets of the Proofs from Hello, Reply and the shared secret."""
        self.suite = suite
        hash = suite.hash_algorithm
        self._th1 = hash.digest(self.transcript)
        self.secrets = handshake_secrets(hash, self._th1, shared_secret, self.config.network_key)

    def responder_chain(self) -> bytes:
        suite, secrets = self._derived()
        return chain_start_responder(suite.hash_algorithm, self._th1, secrets.commit)

    def initiator_chain(self) -> bytes:
        """Return the initiator's first chain value, which covers the responder's Proof."""
        suite, secrets = self._derived()
        hash = suite.hash_algorithm
        covered = hash.digest(self.transcript + self.responder_proof)
        return chain_start_initiator(hash, covered, secrets.commit)

    def make_sender(self, secret: bytes, chain: bytes) -> RecordWriter:
        suite, secrets = self._derived()
        key = self.config.identity.key(suite.signing)
        self.sender = RecordWriter(suite, secret, chain, secrets.commit, key)
        return self.sender

    def make_receiver(self, secret: bytes, chain: bytes) -> RecordReader:
        suite, secrets = self._derived()
        limits = self.agreed_limits()
        self.receiver = RecordReader(
            suite, secret, chain, secrets.commit, limits.seal_events, _admit_none
        )
        return self.receiver

    def bind(self) -> ApplicationSecrets:
        """Bind both chains to the transcript after both Proofs and derive the secrets of epoch
        0.
        """
        suite, secrets = self._derived()
        hash = suite.hash_algorithm
        th2 = hash.digest(self.transcript + self.responder_proof + self.initiator_proof)
        application = secrets.application(th2)
        for direction in (expect(self.sender), expect(self.receiver)):
            direction.bind(th2)
        return application

    # Proofs.

    def proof_frame(self) -> bytes:
        suite = expect(self.suite)
        overhead = sealed_overhead(suite.sealing, suite.signing_algorithm.signature_size)
        payload = self.config.proof_payload(HANDSHAKE_EVENT_SIZE - overhead)
        return expect(self.sender).encrypt(0, 0, CONNECTION, PROOF, payload, True)

    def open_proof(self, event: bytes) -> None:
        """Decrypt and verify the peer's Proof.

        Raises:
            RemoteProtocolError: `bad-record` if it can't be decrypted, otherwise
                `authentication-failed`.
        """
        receiver, suite = expect(self.receiver), expect(self.suite)
        try:
            opened, seal = receiver.decrypt(event, verify=False)
        except RemoteProtocolError as unopened:
            if self.config.network_key is None or unopened.code != CloseCode.BAD_RECORD:
                raise
            # A responder with another network key would have rejected this Hello, so it has none.
            raise RemoteProtocolError(unopened.code, NO_NETWORK_KEY_THERE) from unopened
        if opened.head != (0, 0, CONNECTION, PROOF):
            other = f"event {opened.category}/{opened.subcategory} on stream {opened.stream}"
            raise _refused(f"{other} instead of the Proof")
        self.keep_proof(event)
        self.proof_opened = True
        if seal is None:
            raise _refused("a Proof without seal")
        try:
            proof = read_proof(opened.payload)
        except (LbmDecodeError, IdentityError) as malformed:
            raise _refused(str(malformed)) from malformed
        try:
            receiver.verify_first(seal, proof.identity.verifier(suite.signing))
        except (IdentityError, RemoteProtocolError) as error:
            refuse(opened.payload, proof)
            missing = isinstance(error, IdentityError)
            reason = str(error) if missing else "the Proof's signature is wrong"
            raise _refused(reason) from error
        keep(opened.payload, proof)
        if proof.identity.node_id == self.config.identity.node_id:
            raise _refused(f"the peer has this node's own ID, {proof.identity.node_id}")
        # A copy: whose place a peer has taken depends on the node and changes (section 22).
        self.identity = copy(proof.identity)
        self.info = proof.info()
        self.statements = proof.statements

    def keep_proof(self, event: bytes) -> None:
        """Store the peer's Proof event for the transcript."""
        raise TypeError(f"{type(self).__name__} keeps no Proof")

    # Values that the connection needs.

    def agreed_limits(self) -> Limits:
        return expect(self.limits)

    def frame_limit(self) -> int:
        """Return the longest event after the handshake, in bytes."""
        sealing, size = self._seals()
        return frame_limit(self.agreed_limits().max_payload, sealing=sealing, signature_size=size)

    def control_buffer(self) -> int:
        """Return how many bytes of Pongs, Windows and Resets may wait for the peer to read."""
        sealing, size = self._seals()
        return control_buffer(self.agreed_limits(), sealing=sealing, signature_size=size)

    def _seals(self) -> tuple[str | None, int]:
        """Return the sealing mode and the size of a signature; None and 0 without encryption."""
        suite = self.suite
        return (suite.sealing, suite.signing_algorithm.signature_size) if suite else (None, 0)

    def agreed(self, application: ApplicationSecrets | None) -> Agreed:
        """Return the result; `application` is None without encryption."""
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
        return expect(self.suite), expect(self.secrets)


def _admit_none(stream: int) -> None:
    if stream:
        raise RemoteProtocolError(CloseCode.BAD_RECORD, f"stream {stream} before the Proofs")


def expect(value: T | None) -> T:
    """Return a value that an earlier step must have set."""
    if value is None:
        raise TypeError("a step of the handshake was called out of order")
    return value


def raw_handshake_event(data: bytes) -> Event:
    """Parse a raw event of the handshake: category 1, stream 0, async ID 0.

    Raises:
        RemoteProtocolError: `protocol-error`.
    """
    event = parse_raw(data)
    if event.category != CONNECTION or event.stream or event.async_id:
        place = f"stream {event.stream}, async id {event.async_id}"
        raise violation(f"event {event.category}/{event.subcategory} ({place}) in a handshake")
    return event


def without_frame(framed: bytes) -> bytes:
    return framed[FRAME_HEADER_SIZE:]


def _refused(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(CloseCode.AUTHENTICATION_FAILED, reason)


class Initiator(Handshake):
    """The dialling side. It sends Hello, sends a second Hello after Retry, and then its Proof. It
    rejects algorithms that it didn't offer, and sends no error when it refuses the peer.
    """

    def __init__(self, config: CoreConfig, random: bytes) -> None:
        super().__init__(config, random)
        self._retried = False
        self._keys: dict[str, EphemeralKey] = {}

    def hello(self) -> bytes:
        """Return the frame of the first Hello, with one share for the preferred kex."""
        if self.config.plaintext == "only":
            return self._hello()
        return self._hello(self.config.names("kex")[0])

    def receive(self, data: bytes) -> bytes | None:
        """Process a raw event. Return the frame of a second Hello, or None after a Reply.

        Raises:
            RejectedError: the responder sent Reject.
            RemoteProtocolError: the event is invalid.
        """
        if not self.transcript:
            # Without this check, an unencrypted Reply that arrives before our Hello was built would
            # be accepted as the answer to an unencrypted Hello.
            raise violation(f"an answer of {len(data)} bytes before our Hello")
        event = raw_handshake_event(data)
        try:
            cells = decode_handshake(event.payload)
            if event.subcategory == REJECT:
                raise RejectedError(*parse_code_and_text(cells))
            if event.subcategory == RETRY:
                return self._retry(data, parse_retry(cells))
            if event.subcategory != REPLY:
                raise violation(f"event 1/{event.subcategory} instead of Reply, Retry or Reject")
            check_version(cells)
            self._reply(data, parse_reply(cells))
        except (LbmDecodeError, UnknownAlgorithmError) as error:
            raise violation(f"malformed answer to Hello: {error}") from error
        return None

    def keep_proof(self, event: bytes) -> None:
        """Store the responder's Proof, which our own chain covers."""
        self.responder_proof = event

    def finish(self) -> tuple[bytes, Agreed]:
        """Trust the responder. Return the frame of our Proof, and the result."""
        secrets = expect(self.secrets)
        self.make_sender(secrets.hs_initiator, self.initiator_chain())
        proof = self.proof_frame()
        self.initiator_proof = without_frame(proof)
        application = self.bind()
        expect(self.sender).switch(application.ap_initiator)
        expect(self.receiver).switch(application.ap_responder)
        return proof, self.agreed(application)

    def _hello(self, *kexes: str) -> bytes:
        self._keys = {kex: KEX[kex].generate() for kex in kexes}
        shares = {kex: key.share for kex, key in self._keys.items()}
        event = handshake_event(HELLO, hello_payload(self.config, self.random, shares))
        self.transcript += event
        return frame(event)

    def _retry(self, data: bytes, kex: str) -> bytes:
        if self._retried:
            raise violation(f"a second Retry, for kex {ascii(kex)[:80]}")
        if not self._keys:
            raise violation(f"a Retry for kex {ascii(kex)[:80]} to an unencrypted Hello")
        if kex not in self.config.names("kex") or kex in self._keys:
            asked = ascii(kex)[:80]
            raise violation(f"a Retry for kex {asked}, which was not offered or had its share")
        self._retried = True
        self.transcript += data
        return self._hello(kex)

    def _reply(self, data: bytes, reply: ReplyRead) -> None:
        if (reply.suite is None) != (not self._keys):
            kinds = ("unencrypted", "encrypted")
            reply_kind, hello_kind = kinds[reply.suite is not None], kinds[bool(self._keys)]
            raise violation(f"an {reply_kind} Reply to an {hello_kind} Hello")
        self.transcript += data
        self.remote_role = reply.role
        self.limits = self.config.limits.agreed_with(reply.limits)
        self.resume_ms = min(self.config.resume_ms, reply.resume_ms)
        if reply.suite is None or reply.share is None:
            return
        self._check_offered(reply.suite)
        try:
            shared_secret = self._keys[reply.suite.kex].derive(reply.share)
        except KeyExchangeError as error:
            raise violation(str(error)) from error
        self._keys = {}
        self.derive(reply.suite, shared_secret)
        self.make_receiver(expect(self.secrets).hs_responder, self.responder_chain())

    def _check_offered(self, suite: Suite) -> None:
        for parameter, name in suite.names().items():
            if name not in self.config.names(parameter):
                raise violation(f"a Reply with a {parameter} that was not offered")
        if suite.kex not in self._keys:
            raise violation(f"a Reply with kex {suite.kex}, which had no share")


class Responder(Handshake):
    """The listening side. It sends Retry, or Reply and its Proof, and then verifies the initiator's
    Proof. It performs public-key operations only after the network MAC was verified.
    """

    def __init__(self, config: CoreConfig, random: bytes) -> None:
        super().__init__(config, random)
        self._asked: str | None = None  # the kex that our Retry requested
        self._first = b""  # the cells of the first Hello that a second one must repeat
        self.may_speak = config.network_key is None
        # True if only the initiator has a network key, so that its Proof can't be decrypted.
        self.lacks_network_key = False

    def receive(self, data: bytes) -> tuple[bytes, bool]:
        """Process a Hello. Return the frames to send, and whether they contain Reply.

        Raises:
            RemoteProtocolError: its code is sent in Reject if `may_speak`.
        """
        event = raw_handshake_event(data)
        if event.subcategory != HELLO:
            raise violation(f"event 1/{event.subcategory} instead of Hello")
        try:
            cells = decode_handshake(event.payload)
            self._check_network_mac(cells, HELLO_LABEL)
            self._check_repeated(cells)
            check_version(cells)
            hello = parse_hello(cells)
        except LbmDecodeError as error:
            raise violation(f"malformed Hello: {error}") from error
        self._check_kind(hello)
        self.transcript += data
        self.remote_role = hello.role
        self.limits = self.config.limits.agreed_with(hello.limits)
        self.resume_ms = min(self.config.resume_ms, hello.resume_ms)
        if hello.plaintext:
            reply = handshake_event(REPLY, reply_payload(self.config, self.random, None, None))
            return frame(reply), True
        return self._answer(cells, hello)

    def receive_resume(self, data: bytes) -> ResumeRequest:
        """Parse a Resume that arrived in place of the first Hello.

        Raises:
            RemoteProtocolError: the same errors as `receive`; `unknown-session` if this node
                doesn't resume sessions.
        """
        event = raw_handshake_event(data)
        if self._asked is not None:
            raise violation(
                f"a Resume instead of the second Hello, after a Retry for kex {self._asked}"
            )
        try:
            cells = decode_handshake(event.payload)
            self._check_network_mac(cells, RESUME_LABEL)
            resume = read_resume(cells)
        except LbmDecodeError as error:
            raise violation(f"malformed Resume: {error}") from error
        if not self.config.resume_ms:
            raise RemoteProtocolError(
                CloseCode.UNKNOWN_SESSION, "this node does not resume sessions: resume is 0"
            )
        return resume

    def keep_proof(self, event: bytes) -> None:
        """Store the initiator's Proof, the last event of the transcript."""
        self.initiator_proof = event

    def finish(self) -> Agreed:
        """Trust the initiator, begin epoch 0 and return the result."""
        application = self.bind()
        expect(self.sender).switch(application.ap_responder)
        expect(self.receiver).switch(application.ap_initiator)
        return self.agreed(application)

    def refusal(self) -> bytes:
        """Return Close `authentication-failed` under epoch 0, the only response to a refused
        Proof.
        """
        application = self.bind()
        sender = expect(self.sender)
        sender.switch(application.ap_responder)
        payload = encode({keys.CODE: CloseCode.AUTHENTICATION_FAILED})
        return sender.encrypt(0, 0, CONNECTION, CLOSE, payload, True)

    def _check_network_mac(self, cells: Mapping[int, Value], label: bytes) -> None:
        key = self.config.network_key
        if key is None:
            self.lacks_network_key = keys.NETWORK_MAC in cells
            return
        self.may_speak = False  # a second Hello must be verified again
        mac = read_bytes(cells, keys.NETWORK_MAC, default=b"")
        covered = encode({k: v for k, v in cells.items() if k != keys.NETWORK_MAC})
        if not check_network_mac(key, covered, mac, label):
            other = "another network key" if mac else "no network key"
            reason = f"wrong network MAC: the peer has {other}"
            raise RemoteProtocolError(CloseCode.AUTHENTICATION_FAILED, reason)
        self.may_speak = True

    def _check_kind(self, hello: Hello) -> None:
        if hello.plaintext and self.config.plaintext == "never":
            reason = f"unencrypted Hello, but plaintext is {self.config.plaintext!r}"
            raise RemoteProtocolError(CloseCode.PLAINTEXT_REFUSED, reason)
        if not hello.plaintext and self.config.plaintext == "only":
            raise violation(f"encrypted Hello, but plaintext is {self.config.plaintext!r}")

    def _check_repeated(self, cells: Mapping[int, Value]) -> None:
        if self._asked is None:
            return
        if _lasting(cells) != self._first:
            raise violation("the second Hello differs from the first")
        given = list(read_text_map(cells, keys.SHARES))
        if given != [self._asked]:
            names = ascii(given)[:80]
            raise violation(f"the second Hello has shares for {names}, not for {self._asked}")

    def _answer(self, cells: Mapping[int, Value], hello: Hello) -> tuple[bytes, bool]:
        suite, retry = choose(self.config, hello.offer, hello.shares)
        if retry:
            self._asked = suite.kex
            self._first = _lasting(cells)
            event = handshake_event(RETRY, retry_payload(suite.kex))
            self.transcript += event
            return frame(event), False
        try:
            share, shared_secret = KEX[suite.kex].respond(hello.shares[suite.kex])
        except KeyExchangeError as error:
            raise violation(str(error)) from error
        event = handshake_event(REPLY, reply_payload(self.config, self.random, suite, share))
        self.transcript += event
        self.derive(suite, shared_secret)
        secrets = expect(self.secrets)
        self.make_sender(secrets.hs_responder, self.responder_chain())
        proof = self.proof_frame()
        self.responder_proof = without_frame(proof)
        self.make_receiver(secrets.hs_initiator, self.initiator_chain())
        return frame(event) + proof, True


def _lasting(cells: Mapping[int, Value]) -> bytes:
    """Return the encoded cells of a Hello that a second Hello must repeat."""
    return encode({k: v for k, v in cells.items() if k not in MAY_CHANGE})
