"""The handshake as a connection drives it: either side, step by step, and how it fails.

What a failure tells the other side depends on the state alone, so that all
failures of authentication look alike (docs/protocol.md section 5).
"""

from node.protocol.codes import REJECT, CloseCode
from node.protocol.config import CoreConfig
from node.protocol.errors import RemoteProtocolError
from node.protocol.event import handshake_event
from node.protocol.frames import frame
from node.protocol.handshake import Admit, Agreed, Handshake, known
from node.protocol.hello import reject_payload
from node.protocol.initiator import Initiator
from node.protocol.negotiate import NoCommonAlgorithmError
from node.protocol.reports import PeerIdentified
from node.protocol.responder import Responder
from node.protocol.sealing import Receiver, Sender
from node.protocol.states import Signal, State


class Opening:
    """One handshake from Hello to the decision about the peer."""

    def __init__(self, config: CoreConfig, initiator: bool, random: bytes, admit: Admit) -> None:
        self._initiator = Initiator(config, random, admit) if initiator else None
        self._responder = None if initiator else Responder(config, random, admit)
        self._handshake: Handshake = known(self._initiator or self._responder)

    def first_flight(self) -> bytes:
        """What is sent before anything came: the initiator's Hello."""
        return self._initiator.hello() if self._initiator else b""

    def receive_raw(self, data: bytes) -> tuple[bytes, Signal]:
        """Take a raw event; returns the frames that answer it and what follows.

        Raises:
            RemoteProtocolError: the handshake has failed.
        """
        if self._initiator is not None:
            frames = self._initiator.receive(data)
            if frames is not None:
                return frames, Signal.RETRY
            return b"", self._replied()
        frames, replied = known(self._responder).receive(data)
        return frames, self._replied() if replied else Signal.RETRY

    def receive_proof(self, data: bytes) -> PeerIdentified:
        """Take the other side's Proof; returns the question it leads to.

        Raises:
            RemoteProtocolError: the handshake has failed.
        """
        handshake = self._handshake
        handshake.open_proof(data)
        return PeerIdentified(known(handshake.identity), handshake.remote_role, handshake.info)

    def accept(self) -> tuple[bytes, Agreed]:
        """The peer is trusted: frames to send, and what was agreed."""
        if self._initiator is not None:
            return self._initiator.finish()
        return b"", known(self._responder).finish()

    def plaintext(self) -> Agreed:
        """What was agreed for an unencrypted connection."""
        return self._handshake.agreed(None)

    def frame_limit(self) -> int:
        """The longest event after the handshake, bytes."""
        return self._handshake.frame_limit()

    def directions(self) -> tuple[Sender, Receiver] | None:
        """Both directions; None on an unencrypted connection."""
        if self._handshake.suite is None:
            return None
        return known(self._handshake.sender), known(self._handshake.receiver)

    def farewell(self, state: State, error: RemoteProtocolError) -> bytes:
        """What the other side is told of `error`: a frame, or nothing."""
        responder = self._responder
        if responder is None:
            return b""
        if state is State.EXPECT_HELLO and responder.may_speak:
            parameter = error.parameter if isinstance(error, NoCommonAlgorithmError) else ""
            code = CloseCode.INTERNAL_ERROR if error.code < 0 else error.code
            return frame(handshake_event(REJECT, reject_payload(code, parameter)))
        if state in (State.EXPECT_PROOF, State.DECIDING) and responder.proof_opened:
            return responder.refusal()
        return b""

    def _replied(self) -> Signal:
        return Signal.PLAINTEXT_REPLY if self._handshake.suite is None else Signal.REPLY
