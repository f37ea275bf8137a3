"""The responder's steps of the handshake: Retry or Reply, its Proof, then the other's.

Nothing is spent on a Hello before its network mac is right
(docs/protocol.md section 5). Whom to trust is decided by the caller between `open_proof`
and `finish`.
"""

from collections.abc import Mapping

from parley._crypto.errors import KeyExchangeError
from parley._crypto.registry import KEX
from parley._crypto.schedule import HELLO_LABEL, RESUME_LABEL, check_network_mac
from parley._lbm import keys
from parley._lbm.cells import read_bytes, read_text_map
from parley._lbm.codec import Value, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import CLOSE, CONNECTION, HELLO, REPLY, RETRY, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import RemoteProtocolError, violation
from parley._node.protocol.event import handshake_event
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import (
    Agreed,
    Handshake,
    known,
    raw_handshake_event,
    without_frame,
)
from parley._node.protocol.hello import (
    MAY_CHANGE,
    Hello,
    check_version,
    decode_handshake,
    parse_hello,
    reply_payload,
    retry_payload,
)
from parley._node.protocol.negotiate import choose
from parley._node.protocol.resume import ResumeRequest, read_resume


class Responder(Handshake):
    """The side that is dialled."""

    def __init__(self, config: CoreConfig, random: bytes) -> None:
        super().__init__(config, random)
        self._asked: str | None = None  # the kex of our Retry
        self._first = b""  # the first Hello's cells, but for those that may change
        self.may_speak = config.network_key is None
        # The initiator has a network key and this node has none, so that no Proof will open.
        self.lacks_network_key = False

    def receive(self, data: bytes) -> tuple[bytes, bool]:
        """Take a Hello. Returns the frames that answer it, and whether Reply is among them.

        Raises:
            RemoteProtocolError: with the code that Reject carries, if `may_speak`.
        """
        event = raw_handshake_event(data)
        if event.subcategory != HELLO:
            raise violation(f"event 1/{event.subcategory} in place of Hello")
        try:
            cells = decode_handshake(event.payload)
            self._check_network_mac(cells, HELLO_LABEL)
            self._check_repeated(cells)
            check_version(cells)
            hello = parse_hello(cells)
        except LbmDecodeError as error:
            raise violation(f"a malformed Hello: {error}") from error
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
        """Take a Resume in place of the first Hello.

        Raises:
            RemoteProtocolError: as `receive`; `unknown-session` where nothing is ever resumed.
        """
        event = raw_handshake_event(data)
        if self._asked is not None:
            raise violation(f"a Resume in place of the second Hello, with kex {self._asked}")
        try:
            cells = decode_handshake(event.payload)
            self._check_network_mac(cells, RESUME_LABEL)
            resume = read_resume(cells)
        except LbmDecodeError as error:
            raise violation(f"a malformed Resume: {error}") from error
        if not self.config.resume_ms:
            raise RemoteProtocolError(
                CloseCode.UNKNOWN_SESSION, "no session is resumed here: resume_ms is 0"
            )
        return resume

    def keep_proof(self, event: bytes) -> None:
        """The initiator's Proof, the end of the transcript."""
        self.initiator_proof = event

    def finish(self) -> Agreed:
        """The initiator is trusted: go to epoch 0."""
        application = self.bind()
        known(self.sender).switch(application.ap_responder)
        known(self.receiver).switch(application.ap_initiator)
        return self.agreed(application)

    def refusal(self) -> bytes:
        """Close `authentication-failed` under epoch 0: the one answer to a refused Proof."""
        application = self.bind()
        sender = known(self.sender)
        sender.switch(application.ap_responder)
        payload = encode({keys.CODE: CloseCode.AUTHENTICATION_FAILED})
        return sender.protect(0, 0, CONNECTION, CLOSE, payload, True)

    def _check_network_mac(self, cells: Mapping[int, Value], label: bytes) -> None:
        key = self.config.network_key
        if key is None:
            self.lacks_network_key = keys.NETWORK_MAC in cells
            return
        self.may_speak = False  # a second Hello has to earn it anew
        mac = read_bytes(cells, keys.NETWORK_MAC, default=b"")
        covered = encode({k: v for k, v in cells.items() if k != keys.NETWORK_MAC})
        if not check_network_mac(key, covered, mac, label):
            other = "another network key" if mac else "no network key"
            reason = f"a wrong network mac: the other side has {other}"
            raise RemoteProtocolError(CloseCode.AUTHENTICATION_FAILED, reason)
        self.may_speak = True

    def _check_kind(self, hello: Hello) -> None:
        if hello.plaintext and self.config.plaintext == "never":
            reason = f"an unencrypted Hello, and plaintext is {self.config.plaintext!r}"
            raise RemoteProtocolError(CloseCode.PLAINTEXT_REFUSED, reason)
        if not hello.plaintext and self.config.plaintext == "only":
            raise violation(f"an encrypted Hello, and plaintext is {self.config.plaintext!r}")

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
        secrets = known(self.secrets)
        self.make_sender(secrets.hs_responder, self.responder_chain())
        proof = self.proof_frame()
        self.responder_proof = without_frame(proof)
        self.make_receiver(secrets.hs_initiator, self.initiator_chain())
        return frame(event) + proof, True


def _lasting(cells: Mapping[int, Value]) -> bytes:
    """The cells of a Hello that a second one repeats."""
    return encode({k: v for k, v in cells.items() if k not in MAY_CHANGE})
