"""The interface of observers: a journal, a test or a debugger that sees each encrypted event.

Calls come from inside the core, in the order of the wire, and must be short.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from parley._node.protocol.handshake import Agreed


@dataclass(frozen=True, slots=True)
class DirectionState:
    """The state of a direction between two events, with which the next one can be verified.

    `chain` has the hash's size; `counters` maps each stream of this epoch to its next counter;
    `unsealed` counts the events since the last seal.
    """

    chain: bytes
    epoch: int
    counters: dict[int, int]
    unsealed: int


# Our direction and the other one, as they stand between two events.
Checkpoint = Callable[[], tuple[DirectionState, DirectionState]]


class Observer(Protocol):
    """The calls of the core. `sent` means our direction."""

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        """The handshake is complete. `checkpoint` may be called between two events until the
        session ends."""

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        """The following events of a direction are under `secret`, the epoch's `ap`, which gives the
        key of each stream. `rekey` is the number of its rekey, 0 for none."""

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        """An encrypted event after the Proofs, without the frame length, and the chain value after
        it."""

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        """The last event was the Open of `stream`."""

    def direction_ended(self, stream: int) -> None:
        """A direction of `stream` has ended."""

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        """The shared secret of a rekey, and the chain values that it is derived with."""

    def session_suspended(self, reason: str) -> None:
        """The transport is lost."""

    def session_resumed(self, number: int) -> None:
        """The session continues over another transport, its `number`-th resumption."""

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        """The connection is over; `remote` means that the peer ended it."""
