"""Who is at the relay, by UUID, and what is counted.

One rule: a UUID has one member at a time. Knows no connection: what gets messages is a
`RelayMember`, a client's connection or the node's own bridge.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from node.dialects.relay.codec import is_client_uuid

Piece = bytes | memoryview


class WaitingSender(Protocol):
    """Who waits."""

    def go_on(self, crowd: "RelayCrowd") -> None:
        """There is nothing more to wait for there."""


class RelayCrowd:
    """Senders that are not read because of one client, and what is known of that.

    `waiting` are the senders; `since` is when the client last took anything, or when the
    first of them began to wait.
    """

    __slots__ = ("lagging", "patience", "since", "waiting")

    def __init__(self, patience: float) -> None:
        """`patience` is in seconds."""
        self.patience = patience
        self.waiting: dict[WaitingSender, None] = {}
        self.since = 0.0
        self.lagging = False

    @property
    def deadline(self) -> float:
        """When it is given up, unless the client takes something."""
        return self.since + self.patience

    def join(self, sender: WaitingSender, now: float) -> None:
        """`sender` waits from now on."""
        if not self.waiting:
            self.since = now
        self.waiting[sender] = None

    def leave(self, sender: WaitingSender) -> None:
        """`sender` does not wait any more."""
        self.waiting.pop(sender, None)

    def moved(self, now: float) -> None:
        """The client took something, but not enough."""
        self.since = now

    def disperse(self) -> None:
        """The client has caught up, or is gone: it may be waited for again."""
        self.lagging = False
        self._let_go()

    def give_up(self) -> None:
        """The client took nothing for as long as anybody waits."""
        self.lagging = True
        self._let_go()

    def _let_go(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for sender in waiting:
            sender.go_on(self)


class RelayMember(Protocol):
    """Who takes messages."""

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> RelayCrowd | None:
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
        self.members: dict[bytes, RelayMember] = {}
        self.crowded: dict[bytes, RelayCrowd] = {}
        self.undeliverable = 0
        self.dropped = 0

    def join(self, uuid: bytes, member: RelayMember) -> None:
        """Have `member` get what is for `uuid`.

        Raises:
            ValueError: the UUID is taken, or is none that a client may have.
        """
        if not is_client_uuid(uuid):
            raise ValueError("not a UUID that a client may have")
        if uuid in self.members:
            raise ValueError("the UUID is connected already")
        self.members[uuid] = member

    def leave(self, uuid: bytes, member: RelayMember) -> None:
        """Take `member` out, if it is in."""
        if self.members.get(uuid) is member:
            del self.members[uuid]
            self.crowded.pop(uuid, None)

    def give_up(self, crowds: Collection[RelayCrowd]) -> None:
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
