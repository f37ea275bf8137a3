"""The states of a connection and the table of transitions between them.

Events are delivered from OPEN on (docs/protocol.md section 5). From CLOSING on, received bytes are
discarded. A transition that is not in `NEXT` is a bug in Parley and raises an error.
"""

from enum import IntEnum, auto
from typing import Final

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError


class State(
    IntEnum
):  # integers, because other enumerations have lookups that take ten times as long
    """The state of a connection."""

    EXPECT_HELLO = auto()  # responder: no event was received, or we sent Retry
    EXPECT_REPLY = auto()  # initiator: Hello was sent
    EXPECT_PROOF = auto()  # the keys exist; the peer's Proof hasn't been received
    DECIDING = auto()  # the Proof is verified; the application decides whether to trust the peer
    RESUMING = auto()  # responder: a Resume was received; the caller looks up its session
    OPEN = auto()
    DRAINING = auto()  # closing gracefully: queued data is sent first
    SUSPENDED = auto()  # open, without a transport
    SUSPENDED_DRAINING = auto()  # closing gracefully, without a transport
    CLOSING = auto()  # Close or Reject was sent
    ENDED = auto()


class Signal(IntEnum):
    """The cause of a transition."""

    RETRY = auto()
    REPLY = auto()
    PLAINTEXT_REPLY = auto()
    PROOF = auto()
    RESUME = auto()
    ACCEPT = auto()
    TRANSPORT_LOST = auto()
    TRANSPORT_RESUMED = auto()
    CLOSE_REQUESTED = auto()
    CLOSE_SENT = auto()  # or Reject
    END = auto()  # the transport is closed without a further event


NEXT: Final[dict[tuple[State, Signal], State]] = {
    (State.EXPECT_HELLO, Signal.RETRY): State.EXPECT_HELLO,
    (State.EXPECT_HELLO, Signal.REPLY): State.EXPECT_PROOF,
    (State.EXPECT_HELLO, Signal.PLAINTEXT_REPLY): State.OPEN,
    (State.EXPECT_HELLO, Signal.CLOSE_SENT): State.CLOSING,  # Reject
    (State.EXPECT_HELLO, Signal.RESUME): State.RESUMING,
    (State.RESUMING, Signal.CLOSE_SENT): State.CLOSING,  # Reject: no such session
    (State.EXPECT_REPLY, Signal.RETRY): State.EXPECT_REPLY,
    (State.EXPECT_REPLY, Signal.REPLY): State.EXPECT_PROOF,
    (State.EXPECT_REPLY, Signal.PLAINTEXT_REPLY): State.OPEN,
    (State.EXPECT_PROOF, Signal.PROOF): State.DECIDING,
    (State.EXPECT_PROOF, Signal.CLOSE_SENT): State.CLOSING,  # the Proof is refused
    (State.DECIDING, Signal.ACCEPT): State.OPEN,
    (State.DECIDING, Signal.CLOSE_SENT): State.CLOSING,  # the peer is refused
    (State.OPEN, Signal.CLOSE_REQUESTED): State.DRAINING,
    (State.OPEN, Signal.CLOSE_SENT): State.CLOSING,
    (State.OPEN, Signal.TRANSPORT_LOST): State.SUSPENDED,
    (State.DRAINING, Signal.CLOSE_SENT): State.CLOSING,
    (State.DRAINING, Signal.TRANSPORT_LOST): State.SUSPENDED_DRAINING,
    (State.SUSPENDED, Signal.CLOSE_REQUESTED): State.SUSPENDED_DRAINING,
    (State.SUSPENDED, Signal.TRANSPORT_RESUMED): State.OPEN,
    (State.SUSPENDED_DRAINING, Signal.TRANSPORT_RESUMED): State.DRAINING,
    **{(state, Signal.END): State.ENDED for state in State},
}

HANDSHAKE: Final = frozenset(
    {
        State.EXPECT_HELLO,
        State.EXPECT_REPLY,
        State.EXPECT_PROOF,
        State.DECIDING,
        State.RESUMING,
    }
)
# The application must decide; received bytes wait in the buffer.
AWAITING_DECISION: Final = frozenset({State.DECIDING, State.RESUMING})
# Events are read from the received bytes.
READING: Final = frozenset(
    {State.EXPECT_HELLO, State.EXPECT_REPLY, State.EXPECT_PROOF, State.OPEN, State.DRAINING}
)
LIVE: Final = frozenset({State.OPEN, State.DRAINING})
SUSPENDED: Final = frozenset({State.SUSPENDED, State.SUSPENDED_DRAINING})
# The application can send.
SENDING: Final = frozenset({State.OPEN, State.SUSPENDED})


def next_state(state: State, signal: Signal) -> State:
    """Return the state after `signal`.

    Raises:
        RemoteProtocolError: `internal-error` if the table doesn't contain the transition.
    """
    try:
        return NEXT[state, signal]
    except KeyError:
        reason = f"invalid transition from {state.name} by {signal.name}"
        raise RemoteProtocolError(CloseCode.INTERNAL_ERROR, reason) from None
