"""The members of a relay by UUID, and the senders that wait for them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from parley._node.dialects.relay.codec import is_client_uuid

Piece = bytes | memoryview


class WaitingSender(Protocol):
    """A client that the relay doesn't read from, because a recipient is too slow."""

    def go_on(self, crowd: "WaitingSenders") -> None: ...


class WaitingSenders:
    """The senders that wait for one client.

    `since` is the time when the client last accepted data, or when the first sender began to wait.
    A client that accepts nothing for `patience` seconds is *lagging*: senders don't wait for it
    until it has caught up.
    """

    __slots__ = ("lagging", "patience", "since", "waiting")

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.waiting: dict[WaitingSender, None] = {}
        self.since = 0.0
        self.lagging = False

    @property
    def deadline(self) -> float:
        return self.since + self.patience

    def join(self, sender: WaitingSender, now: float) -> None:
        if not self.waiting:
            self.since = now
        self.waiting[sender] = None

    def leave(self, sender: WaitingSender) -> None:
        self.waiting.pop(sender, None)

    def moved(self, now: float) -> None:
        """Record that the client accepted data, but not yet enough."""
        self.since = now

    def disperse(self) -> None:
        """Resume the senders because the client has caught up or left."""
        self.lagging = False
        self._let_go()

    def give_up(self) -> None:
        """Resume the senders because the client accepted nothing for too long."""
        self.lagging = True
        self._let_go()

    def _let_go(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for sender in waiting:
            sender.go_on(self)


class RelayMember(Protocol):
    """A recipient of messages."""

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> WaitingSenders | None:
        """Queue complete messages, given as slices of buffers that have `held` bytes in total.

        Returns:
            The queue in which the sender must wait, or None.
        """


class Router:
    """The members of one relay.

    `feedback` says whether senders get an error for a target that isn't connected. `crowded`
    contains the members for which senders wait. `undeliverable` counts messages without a connected
    target, and `dropped` counts clients that were dropped because they didn't read.
    """

    __slots__ = ("crowded", "dropped", "feedback", "members", "undeliverable")

    def __init__(self, *, feedback: bool = True) -> None:
        self.feedback = feedback
        self.members: dict[bytes, RelayMember] = {}
        self.crowded: dict[bytes, WaitingSenders] = {}
        self.undeliverable = 0
        self.dropped = 0

    def join(self, uuid: bytes, member: RelayMember) -> None:
        """Register `member` under `uuid`.

        Raises:
            ValueError: the UUID is in use, or reserved.
        """
        if not is_client_uuid(uuid):
            raise ValueError(f"the UUID {uuid.hex()} is reserved")
        if uuid in self.members:
            raise ValueError(f"the UUID {uuid.hex()} is already connected")
        self.members[uuid] = member

    def leave(self, uuid: bytes, member: RelayMember) -> None:
        if self.members.get(uuid) is member:
            del self.members[uuid]
            self.crowded.pop(uuid, None)

    def give_up(self, crowds: Collection[WaitingSenders]) -> None:
        for uuid, crowd in list(self.crowded.items()):
            if crowd in crowds:
                del self.crowded[uuid]
                crowd.give_up()

    def broadcast(self, sender: bytes, pieces: Sequence[Piece], held: int, now: float) -> None:
        """Deliver messages to all members except the sender, without waiting for slow members."""
        for uuid, member in list(self.members.items()):
            if uuid != sender:
                member.deliver(pieces, held, now)
