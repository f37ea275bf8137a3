"""Compares the claims of a session's records with the audited events.

A secret's record must precede everything that needs it, so that a missing one is noticed. A Close
is sealed and the last event. If it can be read, it proves the end's code, text and side. Everything
else in an end record is unproven.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from parley._crypto.errors import AlgorithmNotInstalledError, CryptoError
from parley._crypto.hashing import SHA256
from parley._crypto.registry import PARAMETERS, Suite
from parley._lbm.codec import encode
from parley._node.journal import keys
from parley._node.journal.audit.direction import DirectionTracker
from parley._node.journal.audit.output import SessionOutput
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.keys import RECEIVED, SENT
from parley._node.journal.record_types import (
    DirectionCheckpoint,
    Generation,
    SessionEnd,
    SessionFacts,
)


def report_checkpoint_mismatch(
    tracker: DirectionTracker, state: DirectionCheckpoint, time: int, offset: int
) -> None:
    missing = state.place - tracker.place
    if missing > 0:
        what = f"{missing} events are missing before this checkpoint"
        tracker.out.finding(
            "gap", tracker.direction, tracker.place + 1, time, offset, what, missing
        )
        return
    what = (
        f"the checkpoint's place {state.place}, epoch {state.epoch} and chain value do not "
        f"match the events (place {tracker.place}, epoch {tracker.epoch})"
    )
    tracker.out.finding("checkpoint-mismatch", tracker.direction, tracker.place, time, offset, what)


def report_end_mismatch(
    tracker: DirectionTracker, place: int, chain: bytes, time: int, offset: int
) -> None:
    missing = place - tracker.place
    if missing > 0:
        what = f"{missing} events are missing at the end of the session"
        tracker.out.finding(
            "gap", tracker.direction, tracker.place + 1, time, offset, what, missing
        )
    elif missing or chain != tracker.chain.value:
        what = (
            f"the end has place {place}, but the events have place {tracker.place} or another chain"
        )
        tracker.out.finding("end-mismatch", tracker.direction, tracker.place, time, offset, what)


def close_contradiction(end: SessionEnd, trackers: Sequence[DirectionTracker]) -> str | None:
    """Describe how an end contradicts the sealed Close; return None if none is known."""
    claimed, other = (SENT, RECEIVED)[:: -1 if end.remote else 1]
    closed = trackers[claimed].closed
    if closed is None and any(tracker.unread.last == tracker.place for tracker in trackers):
        return None  # The last event may have been the Close.
    if closed is None and trackers[other].closed is not None:
        side, did = ("the other node", "sent") if end.remote else ("this node", "received")
        return f"the end names {side} as the closing side, but the sealed Close was {did}"
    if closed is None:
        if end.remote and end.code >= 0:
            return f"the end has code {end.code} from the other node, but no Close was received"
        return None
    code, text = closed
    if code != end.code:
        return f"the end has code {end.code}, but the sealed Close has {code}"
    return None if text == end.text else "the end's text differs from the sealed Close"


class KnownSession(NamedTuple):
    """The unverified facts of a session from its start or a checkpoint.

    `started` is in ns, `offset` is the position of the record, and `states` are those of the
    received and the sent direction.
    """

    facts: SessionFacts
    started: int
    offset: int
    th1: bytes
    th2: bytes
    states: tuple[DirectionCheckpoint, DirectionCheckpoint]
    generations: tuple[Generation, ...] = ()
    labels: bytes | None = None


def suite_of(facts: SessionFacts) -> Suite:
    """Return the suite of a session.

    Raises:
        JournalFormatError: the suite is unknown.
        AlgorithmNotInstalledError: an algorithm is not installed on this machine.
    """
    try:
        return Suite.of(dict(zip(PARAMETERS, facts.suite, strict=True)))
    except AlgorithmNotInstalledError:
        raise
    except (CryptoError, KeyError) as error:
        raise JournalFormatError(f"unknown suite: {error}") from error


def constants_digest(facts: SessionFacts, th1: bytes, th2: bytes, started: int) -> bytes:
    """Digest everything that never changes in a session."""
    cells = {**facts.cells(), keys.TH1: th1, keys.TH2: th2, keys.STARTED: started}
    return SHA256.digest(encode(cells))


_KNOWN: Final = 16  # The last ones; a session uses two at a time.


class Generations:
    """The last generations of a session, from records or a checkpoint."""

    def __init__(self, out: SessionOutput, known: Iterable[Generation]) -> None:
        self._out = out
        # None if its absence was reported.
        self._known: dict[int, Generation | None] = {one.number: one for one in known}

    def __contains__(self, generation: int) -> bool:
        return generation in self._known

    def since(self, oldest: int) -> list[int]:
        """Return the generations that a checkpoint has if neither direction is before `oldest`."""
        return sorted(number for number in self._known if not number or number >= oldest)

    def add(self, generation: Generation) -> None:
        """Add the record of a secret; raise JournalFormatError if it is a duplicate."""
        if self._known.get(generation.number) is not None:
            raise JournalFormatError(f"duplicate secret of generation {generation.number}")
        self._put(generation.number, generation)

    def require(self, generation: int, time: int, offset: int) -> bool:
        """Return whether the secret came before this record; if not, report it once."""
        if generation in self._known:
            return True
        self._put(generation, None)
        what = f"the secret of generation {generation} has no record before this, which needs it"
        self._out.finding("missing-secret", None, None, time, offset, what)
        return False

    def agrees(self, said: Generation) -> bool:
        """Return whether a later record matches earlier ones in boxes, if any, and rekey values."""
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
