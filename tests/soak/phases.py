"""Where a run stands, for everybody in a process: load, then rest, then leave.

It only goes forward, when the judge's process says so.
"""

import anyio


class Phases:
    """`rest` is set when no more is to be sent, `left` when all is to be closed."""

    def __init__(self) -> None:
        self.rest = anyio.Event()
        self.left = anyio.Event()

    @property
    def resting(self) -> bool:
        """Whether nothing new is to be begun."""
        return self.rest.is_set()

    @property
    def over(self) -> bool:
        """Whether all is to be closed."""
        return self.left.is_set()
