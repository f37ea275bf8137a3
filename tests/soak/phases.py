"""The phase of a run, shared by all tasks of a process: load, then rest, then leave.

The judge's process starts each phase.
"""

import anyio


class Phases:
    """The current phase: `rest` is set when sending must stop, `left` when everything must
    close.
    """

    def __init__(self) -> None:
        self.rest = anyio.Event()
        self.left = anyio.Event()

    @property
    def resting(self) -> bool:
        """Whether new requests are no longer permitted."""
        return self.rest.is_set()

    @property
    def over(self) -> bool:
        """Whether everything must be closed."""
        return self.left.is_set()
