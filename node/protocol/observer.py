"""Observers: what sees each event as it is on the wire, such as a journal, a test or a debugger.

An observer is told, in the order of the wire, and has no say; without one
nothing is computed for it. The calls come from inside the core, so they must be short.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from parley._node.protocol.handshake import Agreed


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


# Our direction and the other one, as they stand between two events.
Checkpoint = Callable[[], tuple[DirectionState, DirectionState]]


class Observer(Protocol):
    """What the core reports to an observer. `sent` tells our direction from the other."""

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        """The handshake is complete: identities, suite, T1, both Proof events, `hs`.

        `checkpoint` may be called between two events until the session ends.
        """

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        """A direction's events from here on are under `secret`, the epoch's `ap`, which
        gives every stream's key (`StreamKey`); `rekey` is the number of
        the rekey that it is of, 0 for none."""

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        """One encrypted event after the Proofs: its bytes without the frame length, and
        the chain value after it."""

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        """The event just told was the Open of `stream`; its payload."""

    def direction_ended(self, stream: int) -> None:
        """One of the two directions of `stream` has ended."""

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        """The shared secret of a rekey and the chain values it is derived with, when its
        first new keys are made."""

    def session_suspended(self, reason: str) -> None:
        """The transport is gone, and the session waits for another."""

    def session_resumed(self, number: int) -> None:
        """The session goes on over another transport, its `number`-th resumption."""

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        """The connection is over; `remote` says that the other side ended it."""
