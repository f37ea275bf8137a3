"""The states of a connection and every way from one to the next, as literal tables.

The rules: nothing is delivered before OPEN (docs/protocol.md section 5); from FAREWELL
on nothing is read but to be thrown away; ENDED is final. A pair that is not in `NEXT`
is a mistake of ours and raises. (Integers, since members of other
enumerations take ten times as long to look up.)
"""

from enum import IntEnum, auto
from typing import Final

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError


class State(IntEnum):
    """Where a connection stands."""

    EXPECT_HELLO = auto()  # responder: nothing came yet, or our Retry is on its way
    EXPECT_REPLY = auto()  # initiator: Hello is on its way
    EXPECT_PROOF = auto()  # the keys are there, the other side's Proof is not
    DECIDING = auto()  # the Proof is verified; the application says whether it is trusted
    RESUMING = auto()  # responder: a Resume came; the caller looks for its session
    OPEN = auto()
    DRAINING = auto()  # closing gracefully: queued data goes first
    FAREWELL = auto()  # Close or Reject is on its way; what comes is thrown away
    ENDED = auto()


class Signal(IntEnum):
    """What moves a connection on."""

    RETRY = auto()
    REPLY = auto()
    PLAINTEXT_REPLY = auto()
    PROOF = auto()
    RESUME = auto()
    ACCEPT = auto()
    CLOSE_ASKED = auto()
    SAID_FAREWELL = auto()  # something was sent that ends the connection
    END = auto()  # silence: the transport is closed at once


_END: Final = {(state, Signal.END): State.ENDED for state in State}

NEXT: Final[dict[tuple[State, Signal], State]] = {
    (State.EXPECT_HELLO, Signal.RETRY): State.EXPECT_HELLO,
    (State.EXPECT_HELLO, Signal.REPLY): State.EXPECT_PROOF,
    (State.EXPECT_HELLO, Signal.PLAINTEXT_REPLY): State.OPEN,
    (State.EXPECT_HELLO, Signal.SAID_FAREWELL): State.FAREWELL,  # Reject
    (State.EXPECT_HELLO, Signal.RESUME): State.RESUMING,
    (State.RESUMING, Signal.SAID_FAREWELL): State.FAREWELL,  # Reject: there is no such session
    (State.EXPECT_REPLY, Signal.RETRY): State.EXPECT_REPLY,
    (State.EXPECT_REPLY, Signal.REPLY): State.EXPECT_PROOF,
    (State.EXPECT_REPLY, Signal.PLAINTEXT_REPLY): State.OPEN,
    (State.EXPECT_PROOF, Signal.PROOF): State.DECIDING,
    (State.EXPECT_PROOF, Signal.SAID_FAREWELL): State.FAREWELL,  # a Proof refused
    (State.DECIDING, Signal.ACCEPT): State.OPEN,
    (State.DECIDING, Signal.SAID_FAREWELL): State.FAREWELL,  # a peer refused
    (State.OPEN, Signal.CLOSE_ASKED): State.DRAINING,
    (State.OPEN, Signal.SAID_FAREWELL): State.FAREWELL,
    (State.DRAINING, Signal.CLOSE_ASKED): State.DRAINING,
    (State.DRAINING, Signal.SAID_FAREWELL): State.FAREWELL,
    **_END,
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
# Where somebody else has to decide; what comes waits in the buffer.
ASKING: Final = frozenset({State.DECIDING, State.RESUMING})
# Where events are cut from what was received.
READING: Final = frozenset(
    {State.EXPECT_HELLO, State.EXPECT_REPLY, State.EXPECT_PROOF, State.OPEN, State.DRAINING}
)
LIVE: Final = frozenset({State.OPEN, State.DRAINING})


def next_state(state: State, signal: Signal) -> State:
    """The state after `signal`.

    Raises:
        RemoteProtocolError: `internal-error`, the table has no such way.
    """
    try:
        return NEXT[state, signal]
    except KeyError:
        reason = f"no way from {state.name} by {signal.name}"
        raise RemoteProtocolError(CloseCode.INTERNAL_ERROR, reason) from None
