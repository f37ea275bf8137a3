"""The members of a relay, by UUID, and senders that wait until one of them has read more.

A UUID has one member at a time: a client's connection, or the node's own bridge.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from parley._node.dialects.relay.codec import is_client_uuid

Piece = bytes | memoryview


class WaitingSender(Protocol):
    """A client that is not read because its messages have to wait."""

    def go_on(self, crowd: "WaitingSenders") -> None:
        """The senders of a crowd need not wait any more."""


class WaitingSenders:
    """The senders that wait until one client has read more.

    `waiting` are the senders; `since` is when the client last took anything, or when the first
    of them began to wait. A client that takes nothing for `patience` seconds is *lagging*:
    senders do not wait for it again until it has caught up.
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
        """When senders stop waiting, unless the client takes something."""
        return self.since + self.patience

    def join(self, sender: WaitingSender, now: float) -> None:
        """`sender` waits from now on."""
        if not self.waiting:
            self.since = now
        self.waiting[sender] = None

    def leave(self, sender: WaitingSender) -> None:
        """`sender` waits no longer."""
        self.waiting.pop(sender, None)

    def moved(self, now: float) -> None:
        """The client took something, but not enough."""
        self.since = now

    def disperse(self) -> None:
        """The client has caught up, or is gone: senders may wait for it again."""
        self.lagging = False
        self._let_go()

    def give_up(self) -> None:
        """The client took nothing for too long."""
        self.lagging = True
        self._let_go()

    def _let_go(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for sender in waiting:
            sender.go_on(self)


class RelayMember(Protocol):
    """A recipient of messages."""

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> WaitingSenders | None:
        """Take complete messages, in one piece or several, of which each may be a slice of
        what was received; the buffers behind them have `held` bytes in all.

        Returns:
            The crowd in which their sender has to wait, if too much waits for the member.
        """


class Router:
    """The members of one relay.

    `feedback` says whether senders are told of targets that are not connected. `crowded` are
    the members for which too much waits, so that no sender starts to send them more.
    `undeliverable` counts messages, `dropped` the clients that were dropped because they did
    not read.
    """

    __slots__ = ("crowded", "dropped", "feedback", "members", "undeliverable")

    def __init__(self, *, feedback: bool = True) -> None:
        self.feedback = feedback
        self.members: dict[bytes, RelayMember] = {}
        self.crowded: dict[bytes, WaitingSenders] = {}
        self.undeliverable = 0
        self.dropped = 0

    def join(self, uuid: bytes, member: RelayMember) -> None:
        """Let `member` get what is for `uuid`.

        Raises:
            ValueError: the UUID is taken, or a client may not have it.
        """
        if not is_client_uuid(uuid):
            raise ValueError(f"a client cannot have the UUID {uuid.hex()}")
        if uuid in self.members:
            raise ValueError(f"the UUID {uuid.hex()} is already connected")
        self.members[uuid] = member

    def leave(self, uuid: bytes, member: RelayMember) -> None:
        """Take `member` out, if it is in."""
        if self.members.get(uuid) is member:
            del self.members[uuid]
            self.crowded.pop(uuid, None)

    def give_up(self, crowds: Collection[WaitingSenders]) -> None:
        """Let no sender wait for these members any more."""
        for uuid, crowd in list(self.crowded.items()):
            if crowd in crowds:
                del self.crowded[uuid]
                crowd.give_up()

    def broadcast(self, sender: bytes, pieces: Sequence[Piece], held: int, now: float) -> None:
        """Deliver complete messages to all but the sender; for members without a connection,
        which never wait."""
        for uuid, member in list(self.members.items()):
            if uuid != sender:
                member.deliver(pieces, held, now)
