"""The observer interface: a journal, test or debugger receives each encrypted event of a
connection.

The core calls observers synchronously, in the order of the wire, so their methods must be fast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from parley._node.protocol.handshake import Agreed


@dataclass(frozen=True, slots=True)
class DirectionState:
    """The state of one direction between two events, from which the next event can be verified.

    `chain` has the size of the hash. `counters` maps each stream of this epoch to its next counter.
    `unsealed` is the number of events since the last seal.
    """

    chain: bytes
    epoch: int
    counters: dict[int, int]
    unsealed: int


# Returns the state of the sending and of the receiving direction between two events.
Checkpoint = Callable[[], tuple[DirectionState, DirectionState]]


class Observer(Protocol):
    """Callbacks for the events of one connection.

    Pass a function that creates one to `Node(observer=...)`.

    In every callback, `sent` is True for the local node's sending direction.

    Example:

        from parley import Identity, Node
        from parley.protocol import Observer

        class ByteCounter(Observer):
            total = 0

            def event(self, sent: bool, data: bytes, chain: bytes) -> None:
                self.total += len(data)

        watched = Node(Identity.create(), observer=ByteCounter)
    """

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        """Handle the end of the handshake. `checkpoint` may be called between two events until the
        session ends.
        """

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        """Handle a new epoch of one direction. `secret` is the epoch's `ap`, from which the key of
        each stream is derived. `rekey` is the number of the rekey that began the epoch; 0 if none
        did.
        """

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        """Handle an encrypted event after the Proofs. `data` is the event without the frame length,
        `chain` the chain value after it.
        """

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        """Handle the opening of `stream`: its Open was the last event."""

    def direction_ended(self, stream: int) -> None:
        """Handle the end of one direction of `stream`."""

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        """Handle a rekey. The new secrets are derived from its shared secret and the two chain
        values.
        """

    def session_suspended(self, reason: str) -> None:
        """Handle the loss of the transport."""

    def session_resumed(self, number: int) -> None:
        """Handle the `number`-th resumption of the session, over another transport."""

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        """Handle the end of the connection; `remote` means that the peer ended it."""
