"""The members of a relay by UUID, and senders that wait for them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from parley._node.dialects.relay.codec import is_client_uuid

Piece = bytes | memoryview


class WaitingSender(Protocol):
    """A client that isn't read because its messages must wait."""

    def go_on(self, crowd: "WaitingSenders") -> None: ...


class WaitingSenders:
    """The senders that wait for one client.

    `since` is when the client last took data, or the first sender began to wait. A client that
    takes nothing for `patience` seconds is *lagging*: senders don't wait for it until it has caught
    up.
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
        """The client took data, but not enough."""
        self.since = now

    def disperse(self) -> None:
        """The client has caught up or left: resume the senders."""
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
        """Take complete messages as slices of buffers, which have `held` bytes in total.

        Returns:
            What the sender must wait for, if too much waits for the member.
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
        """Register `member` under `uuid`.

        Raises:
            ValueError: the UUID is taken, or a client may not have it.
        """
        if not is_client_uuid(uuid):
            raise ValueError(f"a client cannot have the UUID {uuid.hex()}")
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
        """Deliver messages to all but the sender; for members that never make a sender wait."""
        for uuid, member in list(self.members.items()):
            if uuid != sender:
                member.deliver(pieces, held, now)
