"""What a session begins with, as its start or a checkpoint has it, and what never changes in it.

One rule: nothing is verified here; only what fits no session at all is refused.
"""

from typing import NamedTuple

from crypto.errors import CryptoError
from crypto.hashing import SHA256
from crypto.registry import PARAMETERS, Suite
from lbm.codec import encode
from node.journal import keys
from node.journal.errors import JournalFormatError
from node.journal.sessions import Direction, Generation, SessionFacts


class Known(NamedTuple):
    """What a session begins with: as its start or a checkpoint has it; `started` in ns,
    `offset` of that record, `states` received and sent."""

    facts: SessionFacts
    started: int
    offset: int
    th1: bytes
    th2: bytes
    states: tuple[Direction, Direction]
    generations: tuple[Generation, ...] = ()
    labels: bytes | None = None


def suite_of(facts: SessionFacts) -> Suite:
    """The suite of a session; raises JournalFormatError for one that there is not."""
    try:
        return Suite.of(dict(zip(PARAMETERS, facts.suite, strict=True)))
    except (CryptoError, KeyError) as error:
        raise JournalFormatError(f"an unknown suite: {error}") from error


def constant_of(facts: SessionFacts, th1: bytes, th2: bytes, started: int) -> bytes:
    """A digest of what never changes in a session."""
    cells = {**facts.cells(), keys.TH1: th1, keys.TH2: th2, keys.STARTED: started}
    return SHA256.digest(encode(cells))
