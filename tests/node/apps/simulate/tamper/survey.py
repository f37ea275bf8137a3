"""What is in written journals: which sessions' events, in which segments, how many.

It has one entry for each session, direction and segment, and none for single events, so that it
fits in memory however long the journals are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from parley._node.journal import keys
from parley._node.journal.fields import parse_event_head
from parley._node.journal.names import CLOSED, SegmentName
from parley._node.journal.segments import list_segments, read_range
from parley._node.journal.sessions import SessionFacts, SessionStart


@dataclass(slots=True)
class WrittenSession:
    """A session as one journal has it. `places` are of the last events so far, received and
    sent; `end` is the segment with its end."""

    number: int
    facts: SessionFacts
    segments: list[Path] = field(default_factory=list)
    places: list[int] = field(default_factory=lambda: [0, 0])
    end: Path | None = None

    def way(self, direction: int) -> tuple[str, bool]:
        """The session and whose chain it is: the same for both ends' journals."""
        return self.facts.session_id.hex(), self.facts.initiator == (direction == keys.SENT)


@dataclass(slots=True)
class Stretch:
    """The events of one session and direction in one segment: `first` is the place of the
    first of them."""

    path: Path
    name: SegmentName
    session: WrittenSession
    direction: int
    first: int
    count: int = 0

    @property
    def has_end(self) -> bool:
        """Whether the direction's last event is in it."""
        return self.first + self.count - 1 == self.session.places[self.direction]


@dataclass(slots=True)
class WrittenJournals:
    """All of a directory's closed segments, whole as their writers left them."""

    segments: list[tuple[Path, SegmentName]]
    stretches: list[Stretch]
    sessions: list[WrittenSession]


def survey(directory: Path) -> WrittenJournals:
    """Look through all closed segments; raises OSError, JournalFormatError."""
    closed = [file for file in list_segments(directory) if file.name.state == CLOSED]
    # Not by node ids, which are new each time: so a seed means the same places each time.
    closed.sort(key=lambda file: (file.name.start, file.name.node, file.name.number))
    found = WrittenJournals([(file.path, file.name) for file in closed], [], [])
    live: dict[tuple[str, str, int], WrittenSession] = {}
    for file in closed:
        run = file.name.node, file.name.start
        stretches: dict[tuple[int, int], Stretch] = {}
        for kind, number, direction, body in _of_sessions(file.path, file.size):
            if kind == keys.SESSION_START:
                start = SessionStart.parse(body)
                live[(*run, number)] = session = WrittenSession(number, start.facts)
                found.sessions.append(session)
            session = live[(*run, number)]
            if file.path not in session.segments:
                session.segments.append(file.path)
            if kind == keys.SESSION_END:
                session.end = file.path
            elif kind == keys.EVENT:
                session.places[direction] += 1
                stretch = stretches.get((number, direction))
                if stretch is None:
                    first = session.places[direction]
                    stretch = Stretch(file.path, file.name, session, direction, first)
                    stretches[number, direction] = stretch
                stretch.count += 1
        found.stretches += stretches.values()
    return found


def _of_sessions(path: Path, size: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, session, direction and body of the records that a session has."""
    for record in read_range(path, 0, size):
        if record.kind == keys.EVENT:
            yield record.kind, *parse_event_head(record.body), b""
        elif keys.CHECKPOINT <= record.kind <= keys.SESSION_END:
            yield record.kind, int.from_bytes(record.body[:4], "big"), 0, record.body
