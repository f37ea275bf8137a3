"""Which generations' secrets a session has in its journal, and which should have been there.

One rule: a secret's record comes before all that is under it, so whatever needs one that
never came shows that it is absent, with an auditor's key or without.
"""

from collections.abc import Iterable
from typing import Final

from node.journal.audit.output import SessionOutput

_KNOWN: Final = 16  # the last ones; a session uses two at a time


class Generations:
    """The last generations of a session, as records or a checkpoint have told of them."""

    __slots__ = ("_known", "_out")

    def __init__(self, out: SessionOutput, known: Iterable[int]) -> None:
        self._out = out
        self._known = set(known)

    def __contains__(self, generation: int) -> bool:
        return generation in self._known

    def add(self, generation: int) -> None:
        """Its secret's record is there."""
        self._known.add(generation)
        if len(self._known) > _KNOWN:
            self._known.remove(min(self._known - {0}))

    def require(self, generation: int, time: int, offset: int) -> bool:
        """Whether the secret was there before this record, which needs it; told once if not."""
        if generation in self._known:
            return True
        self.add(generation)
        what = f"the record of the secret of generation {generation} is absent: it must come first"
        self._out.finding("missing-secret", None, None, time, offset, what)
        return False
