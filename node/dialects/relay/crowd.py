"""Who waits until one client of the relay has read more.

One rule: nobody waits for longer than `patience` while that client takes nothing; then it
is *lagging*, and nobody waits for it again until it has caught up. Knows no queue: how
much waits, and for whom, is the connection's.
"""

from typing import Protocol


class Sender(Protocol):
    """Who waits."""

    def go_on(self, crowd: "Crowd") -> None:
        """There is nothing more to wait for there."""


class Crowd:
    """Senders that are not read because of one client, and what is known of that.

    `waiting` are the senders; `since` is when the client last took anything, or when the
    first of them began to wait.
    """

    __slots__ = ("lagging", "patience", "since", "waiting")

    def __init__(self, patience: float) -> None:
        """`patience` is in seconds."""
        self.patience = patience
        self.waiting: dict[Sender, None] = {}
        self.since = 0.0
        self.lagging = False

    @property
    def deadline(self) -> float:
        """When it is given up, unless the client takes something."""
        return self.since + self.patience

    def join(self, sender: Sender, now: float) -> None:
        """`sender` waits from now on."""
        if not self.waiting:
            self.since = now
        self.waiting[sender] = None

    def leave(self, sender: Sender) -> None:
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
