"""Which generations' secrets a session has in its journal, and which should have been there.

One rule: a secret's record comes before all that is under it, so whatever needs one that
never came shows that it is absent; and what is said of a generation twice must be the same,
with an auditor's key or without.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from node.journal.audit.output import SessionOutput
from node.journal.errors import JournalFormatError
from node.journal.sessions import Generation

_KNOWN: Final = 16  # the last ones; a session uses two at a time


class Generations:
    """The last generations of a session, as records or a checkpoint have told of them."""

    __slots__ = ("_known", "_out")

    def __init__(self, out: SessionOutput, known: Iterable[Generation]) -> None:
        self._out = out
        # None: it was told that it is absent.
        self._known: dict[int, Generation | None] = {one.number: one for one in known}

    def __contains__(self, generation: int) -> bool:
        return generation in self._known

    def since(self, oldest: int) -> list[int]:
        """The numbers of those that a checkpoint has while no direction is before `oldest`."""
        return sorted(number for number in self._known if not number or number >= oldest)

    def add(self, generation: Generation) -> None:
        """Its secret's record is there; raises JournalFormatError if it was there before."""
        if self._known.get(generation.number) is not None:
            raise JournalFormatError(f"a second secret of generation {generation.number}")
        self._put(generation.number, generation)

    def require(self, generation: int, time: int, offset: int) -> bool:
        """Whether the secret was there before this record, which needs it; told once if not."""
        if generation in self._known:
            return True
        self._put(generation, None)
        what = f"the record of the secret of generation {generation} is absent: it must come first"
        self._out.finding("missing-secret", None, None, time, offset, what)
        return False

    def agrees(self, said: Generation) -> bool:
        """Whether what a later record says of a generation is what was said before: its boxes,
        if it has any, and the rekey's three values, which it has from its first key update on."""
        known = self._known.get(said.number)
        if known is None:
            return True
        whole = replace(said, boxes=said.boxes or known.boxes)
        if known.commit is None:
            known = self._known[said.number] = replace(whole, boxes=known.boxes)
        return whole == known

    def _put(self, number: int, generation: Generation | None) -> None:
        self._known[number] = generation
        if len(self._known) > _KNOWN:
            del self._known[min(known for known in self._known if known)]
