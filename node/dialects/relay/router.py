"""Who is at the relay, by UUID, and what is counted.

One rule: a UUID has one member at a time. Knows no connection: what gets messages is a
`Member`, a client's connection or the node's own bridge.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from node.dialects.relay.codec import is_client_uuid
from node.dialects.relay.crowd import Crowd

Piece = bytes | memoryview


class Member(Protocol):
    """Who takes messages."""

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> Crowd | None:
        """Take whole messages, in one piece or several, of which each may be a slice of
        what was received; the buffers behind them have `held` bytes together.

        Returns:
            Where their sender is to wait, if much waits for the member.
        """


class Router:
    """The members of one relay.

    `feedback` says whether senders are told of targets that are not there. `crowded` are
    those members for which much waits, so that nobody begins to send them more. Counted are
    `undeliverable` messages and the clients that were `dropped` because they did not read.
    """

    __slots__ = ("crowded", "dropped", "feedback", "members", "undeliverable")

    def __init__(self, *, feedback: bool = True) -> None:
        self.feedback = feedback
        self.members: dict[bytes, Member] = {}
        self.crowded: dict[bytes, Crowd] = {}
        self.undeliverable = 0
        self.dropped = 0

    def join(self, uuid: bytes, member: Member) -> None:
        """Have `member` get what is for `uuid`.

        Raises:
            ValueError: the UUID is taken, or is none that a client may have.
        """
        if not is_client_uuid(uuid):
            raise ValueError("not a UUID that a client may have")
        if uuid in self.members:
            raise ValueError("the UUID is connected already")
        self.members[uuid] = member

    def leave(self, uuid: bytes, member: Member) -> None:
        """Take `member` out, if it is in."""
        if self.members.get(uuid) is member:
            del self.members[uuid]
            self.crowded.pop(uuid, None)

    def give_up(self, crowds: Collection[Crowd]) -> None:
        """Have nobody wait for these members any more."""
        for uuid, crowd in list(self.crowded.items()):
            if crowd in crowds:
                del self.crowded[uuid]
                crowd.give_up()

    def broadcast(self, sender: bytes, pieces: Sequence[Piece], held: int, now: float) -> None:
        """Hand whole messages to all but the sender; for members without a connection, which
        wait for nobody."""
        for uuid, member in list(self.members.items()):
            if uuid != sender:
                member.deliver(pieces, held, now)
