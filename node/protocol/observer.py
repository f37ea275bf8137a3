"""Who asks to see each event as it is on the wire: a journal, a test, a debugger.

One rule: an observer is told, in the order of the wire, and has no say; without one
nothing is computed for it. The calls come from inside the core, so they must be short.
"""

from dataclasses import dataclass
from typing import Protocol

from node.protocol.handshake import Agreed


@dataclass(frozen=True, slots=True)
class DirectionState:
    """A direction as a checkpoint needs it: with it the next event can be verified.

    `chain` has the hash's size; `counters` maps each stream used in this epoch to its
    next counter; `unsealed` counts the events since the last seal.
    """

    chain: bytes
    epoch: int
    counters: dict[int, int]
    unsealed: int


class Observer(Protocol):
    """What the core reports to who asks. `sent` tells our direction from the other."""

    def session_started(self, agreed: Agreed, initiator: bool) -> None:
        """The handshake is complete: identities, suite, T1, both Proof events, `hs`."""

    def epoch_began(self, sent: bool, epoch: int, secret: bytes) -> None:
        """A direction's events from here on are under `secret`, the epoch's `ap`, which
        gives every stream's key (`crypto.streamkeys.StreamKey`)."""

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        """One encrypted event after the Proofs: its bytes without the frame length, and
        the chain value after it."""

    def rekeyed(self, number: int, shared_secret: bytes) -> None:
        """The shared secret of a rekey, when its first new keys are made."""

    def session_ended(self, code: int) -> None:
        """The connection is over."""
