"""`Waker`: how a core tells its driver that there is something to do for it.

Whatever queues something to be written wakes the driver, which flushes in the loop's next
turn and then sets the timer; so whoever sends need not ask for a flush.
"""

from collections.abc import Callable


def _nobody() -> None:
    """No driver serves the core: whoever made it asks for its bytes."""


class Waker:
    """`wake` is called when at least `count` events, or `size` bytes, wait to be written.

    The driver sets both: to 0 while it sleeps, to what it writes at once while its next flush is
    due, and to infinity while it works, since it then looks at everything afterwards.
    """

    __slots__ = ("count", "size", "wake")

    def __init__(self) -> None:
        self.count = 0.0
        self.size = 0.0
        self.wake: Callable[[], None] = _nobody

    def changed(self) -> None:
        """Wake a driver that sleeps for something other than an event: frames that are ready,
        a report, or room to read on."""
        if not self.count:
            self.wake()
