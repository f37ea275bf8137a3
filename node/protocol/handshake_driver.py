"""Drives the handshake of a connection: messages of either side, the new session, and failures.

The events sent after a failure depend only on the state, so that a peer can't tell one
authentication failure from another (docs/protocol.md section 5).
"""

from typing import Final

from parley._node.protocol.codes import CONNECTION, REJECT, RESUME, CloseCode
from parley._node.protocol.errors import NoCommonAlgorithmError, RemoteProtocolError
from parley._node.protocol.event import handshake_event
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import (
    NO_NETWORK_KEY_HERE,
    Agreed,
    Handshake,
    Initiator,
    Responder,
    expect,
)
from parley._node.protocol.handshake_messages import reject_payload
from parley._node.protocol.replay_buffer import ReplayBuffer
from parley._node.protocol.reports import HandshakeCompleted, PeerIdentified, ResumeRequested
from parley._node.protocol.resumption import ResumeKey, Resumption
from parley._node.protocol.session import ConnectionParts, Session
from parley._node.protocol.states import Signal, State

_RESUME_TYPE: Final = bytes((CONNECTION, RESUME))  # position of the type in a raw event


class HandshakeDriver:
    """One handshake, from Hello until the session exists. It is complete once `agreed` is set."""

    def __init__(self, parts: ConnectionParts, random: bytes) -> None:
        self._parts = parts
        config = parts.config
        self._initiator = Initiator(config, random) if parts.initiator else None
        self._responder = None if parts.initiator else Responder(config, random)
        self.handshake: Handshake = expect(self._initiator or self._responder)
        self._hello_due = parts.initiator
        self.agreed: Agreed | None = None

    def send_hello(self) -> None:
        """Write the initiator's Hello. It is created as late as possible: a failed dial then
        generates no keys, and on a network the responder prepares in the meantime.
        """
        if self._hello_due and self._initiator is not None:
            self._hello_due = False
            self._parts.wire.write(self._initiator.hello())

    def receive(self, state: State, data: bytes) -> Signal:
        """Process an event and respond to it or report it; return the transition.

        Raises:
            RemoteProtocolError: the handshake has failed.
        """
        if state is State.EXPECT_PROOF:
            return self._proved(data)
        if self._responder is not None and data[6:8] == _RESUME_TYPE:
            resume = self._responder.receive_resume(data)
            self._parts.reports.append(ResumeRequested(resume))
            return Signal.RESUME
        if self._initiator is not None:
            frames = self._initiator.receive(data)
            replied = frames is None
        else:
            frames, replied = expect(self._responder).receive(data)
        self._parts.wire.write(frames or b"")
        return self._replied() if replied else Signal.RETRY

    def accept(self) -> Signal:
        """Trust the peer: write our Proof if it is due, and complete the handshake."""
        if self._initiator is not None:
            proof, self.agreed = self._initiator.finish()
            self._parts.wire.write(proof)
        else:
            self.agreed = expect(self._responder).finish()
        return Signal.ACCEPT

    def session(self, longest: int, now: float) -> Session:
        """Create the agreed session; `longest` is `frame_limit`."""
        agreed, handshake = expect(self.agreed), self.handshake
        directions = None
        if handshake.suite is not None:
            directions = expect(handshake.sender), expect(handshake.receiver)
        control = handshake.control_buffer()
        resumption = self._resumption(longest + control, now)
        session = Session(self._parts, agreed, directions, resumption, control, now)
        self._parts.reports.append(HandshakeCompleted(agreed.without_secrets()))
        session.begin()
        return session

    def _resumption(self, exempt: int, now: float) -> Resumption | None:
        """Return the resumption state, if agreed. `exempt` is how many bytes may exceed the
        buffer.
        """
        agreed, parts = expect(self.agreed), self._parts
        if not agreed.resume:
            return None
        hash = expect(agreed.suite).hash_algorithm
        key = ResumeKey(hash, expect(agreed.exporter), expect(agreed.session_id))
        # Frames of the handshake that still wait for the transport don't count as positions.
        kept = ReplayBuffer(parts.config.resume_buffer, exempt, parts.wire.size, parts.account)
        return Resumption(key, agreed.resume, initiator=parts.initiator, kept=kept, now=now)

    def lost_because(self, reason: str) -> str:
        """Return why the transport ended during the handshake, if known."""
        responder = self._responder
        lacks = responder is not None and responder.lacks_network_key
        return NO_NETWORK_KEY_HERE if lacks else reason

    def frame_limit(self) -> int:
        return self.handshake.frame_limit()

    def failure_frames(self, state: State, error: RemoteProtocolError) -> bytes:
        """Return the frame that reports `error` to the peer, or b""."""
        responder = self._responder
        if responder is None:
            return b""
        if state in (State.EXPECT_HELLO, State.RESUMING) and responder.may_speak:
            parameter = error.parameter if isinstance(error, NoCommonAlgorithmError) else ""
            code = CloseCode.INTERNAL_ERROR if error.code < 0 else error.code
            return frame(handshake_event(REJECT, reject_payload(code, parameter)))
        if state in (State.EXPECT_PROOF, State.DECIDING) and responder.proof_opened:
            return responder.refusal()
        return b""

    def _proved(self, data: bytes) -> Signal:
        handshake = self.handshake
        handshake.open_proof(data)
        identity = expect(handshake.identity)
        question = PeerIdentified(
            identity, handshake.remote_role, handshake.info, handshake.statements
        )
        self._parts.reports.append(question)
        return Signal.PROOF

    def _replied(self) -> Signal:
        if self.handshake.suite is not None:
            return Signal.REPLY
        self.agreed = self.handshake.agreed(None)
        return Signal.PLAINTEXT_REPLY
