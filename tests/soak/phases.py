"""The phase of a run, for all tasks of a process: load, then rest, then leave.

It only advances, on command of the judge's process.
"""

import anyio


class Phases:
    """`rest` is set when sending must stop, `left` when all connections must be closed."""

    def __init__(self) -> None:
        self.rest = anyio.Event()
        self.left = anyio.Event()

    @property
    def resting(self) -> bool:
        """Return whether no new work may begin."""
        return self.rest.is_set()

    @property
    def over(self) -> bool:
        """Whether all is to be closed."""
        return self.left.is_set()
