"""The initiator's steps of the handshake: Hello, perhaps again after Retry, then Proof.

It takes nothing that it did not offer, and says nothing when it refuses
(docs/protocol.md section 5). Whom to trust is decided by the caller between `open_proof`
and `finish`.
"""

from parley._crypto.errors import KeyExchangeError, UnknownAlgorithmError
from parley._crypto.exchange import EphemeralKey
from parley._crypto.registry import KEX, Suite
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import HELLO, REJECT, REPLY, RETRY, CloseCode
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
    ReplyRead,
    check_version,
    decode_handshake,
    hello_payload,
    parse_code_and_text,
    parse_reply,
    parse_retry,
)


class RejectedError(RemoteProtocolError):
    """The responder answered Reject; `code` is its code, `text` its sentence."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(CloseCode.PROTOCOL_ERROR, f"rejected: {text}")
        self.code = code
        self.text = text


class Initiator(Handshake):
    """The side that dials."""

    def __init__(self, config: CoreConfig, random: bytes) -> None:
        super().__init__(config, random)
        self._retried = False
        self._keys: dict[str, EphemeralKey] = {}

    def hello(self) -> bytes:
        """The frame of the first Hello: one share, for the first kex."""
        if self.config.plaintext == "only":
            return self._hello()
        return self._hello(self.config.names("kex")[0])

    def receive(self, data: bytes) -> bytes | None:
        """Take a raw event. Returns a second Hello's frame, or None after a Reply.

        Raises:
            RejectedError: the responder refused. RemoteProtocolError: anything wrong.
        """
        if not self.transcript:
            # As long as there are no keys of ours, a Reply in plain would pass for the answer
            # to a Hello in plain.
            raise violation(f"an answer of {len(data)} bytes before our Hello")
        event = raw_handshake_event(data)
        try:
            cells = decode_handshake(event.payload)
            if event.subcategory == REJECT:
                raise RejectedError(*parse_code_and_text(cells))
            if event.subcategory == RETRY:
                return self._retry(data, parse_retry(cells))
            if event.subcategory != REPLY:
                raise violation(f"event 1/{event.subcategory}, neither Reply nor Retry nor Reject")
            check_version(cells)
            self._reply(data, parse_reply(cells))
        except (LbmDecodeError, UnknownAlgorithmError) as error:
            raise violation(f"a malformed answer to Hello: {error}") from error
        return None

    def keep_proof(self, event: bytes) -> None:
        """The responder's Proof, which our own chain covers."""
        self.responder_proof = event

    def finish(self) -> tuple[bytes, Agreed]:
        """The responder is trusted: our Proof's frame, and what was agreed."""
        secrets = known(self.secrets)
        self.make_sender(secrets.hs_initiator, self.initiator_chain())
        proof = self.proof_frame()
        self.initiator_proof = without_frame(proof)
        application = self.bind()
        known(self.sender).switch(application.ap_initiator)
        known(self.receiver).switch(application.ap_responder)
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
        self.make_receiver(known(self.secrets).hs_responder, self.responder_chain())

    def _check_offered(self, suite: Suite) -> None:
        for parameter, name in suite.names().items():
            if name not in self.config.names(parameter):
                raise violation(f"a Reply with a {parameter} that was not offered")
        if suite.kex not in self._keys:
            raise violation(f"a Reply with kex {suite.kex}, which had no share")
