"""What checkpoints and ends say of a session, beside what its events gave.

One rule: a Close is sealed and the last event of all, so code, text and who closed are proven
where there is one and it can be read; all else that an end says is its node's bare word.
"""

from collections.abc import Sequence

from node.journal.audit.track import Track
from node.journal.bodies import SessionEnd
from node.journal.keys import RECEIVED, SENT
from node.journal.sessions import Direction


def beside_checkpoint(track: Track, state: Direction, time: int, offset: int) -> None:
    """The finding of a checkpoint that says something else of a direction."""
    missing = state.place - track.place
    if missing > 0:
        what = f"{missing} events are missing before this checkpoint"
        track.sink.finding("gap", track.direction, track.place + 1, time, offset, what, missing)
        return
    what = (
        f"the checkpoint names place {state.place}, epoch {state.epoch} and a chain value "
        f"that are not those found (place {track.place}, epoch {track.epoch})"
    )
    track.sink.finding("checkpoint-mismatch", track.direction, track.place, time, offset, what)


def beside_end(track: Track, place: int, chain: bytes, time: int, offset: int) -> None:
    """The finding of an end that says something else of a direction, if it does."""
    missing = place - track.place
    if missing > 0:
        what = f"{missing} events are missing at the end of the session"
        track.sink.finding("gap", track.direction, track.place + 1, time, offset, what, missing)
    elif missing or chain != track.chain.value:
        what = f"the end names place {place}; found was {track.place}, or another chain"
        track.sink.finding("end-mismatch", track.direction, track.place, time, offset, what)


def contradiction(end: SessionEnd, tracks: Sequence[Track]) -> str | None:
    """What of an end is not what was sealed, as a sentence; None if nothing is known to be."""
    claimed, other = (SENT, RECEIVED)[:: -1 if end.remote else 1]
    closed = tracks[claimed].closed
    if closed is None and any(track.unread.last == track.place for track in tracks):
        return None  # the last event may have been the Close
    if closed is None and tracks[other].closed is not None:
        who, did = ("the other side", "sent") if end.remote else ("this side", "received")
        return f"the end says that {who} closed; the sealed Close was {did}"
    if closed is None:
        if end.remote and end.code >= 0:
            return f"the end says that the other side closed with {end.code}; no Close came"
        return None
    code, text = closed
    if code != end.code:
        return f"the end says code {end.code}, the sealed Close {code}"
    return None if text == end.text else "the end's text is not that of the sealed Close"
