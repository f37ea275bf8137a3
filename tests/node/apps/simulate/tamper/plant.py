"""Plants faults of the given kinds, at places that a seed chooses.

There is at most one fault for each session and direction, counted over the journals of both ends,
so that findings can be told apart. Where no place is left an error says so, and nothing is planted.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from parley._node.apps.simulate.draws import Draws
from parley._node.errors import FileError
from parley._node.journal.segments import read_end
from tests.node.apps.simulate.tamper import chains, events
from tests.node.apps.simulate.tamper.planted import Fault, Planted
from tests.node.apps.simulate.tamper.segment import Segment
from tests.node.apps.simulate.tamper.survey import Stretch, WrittenJournals, WrittenSession, survey

_CHANGES: Final[dict[Fault, events.Change]] = {
    Fault.BIT_FLIP: events.bit_flip,
    Fault.DROP: events.drop,
    Fault.REORDER: events.reorder,
    Fault.DUPLICATE: events.duplicate,
    Fault.FOREIGN_SEAL: events.foreign_seal,
    Fault.BAD_CRC: events.bad_crc,
}
# What leaves a segment that cannot be read as a whole any more comes after all else.
_LAST: Final = (Fault.BAD_CRC, Fault.TORN_TAIL, Fault.MISSING_SEGMENT)
# Events that a stretch has at least.
_LEAST: Final = 4


def tamper(directory: Path, kinds: Iterable[Fault], seed: int) -> list[Planted]:
    """Plant one fault of each of `kinds`, two for forged-end; returns them in their order.

    Raises FileError where there is no place left for one, and OSError.
    """
    wanted = sorted(kinds, key=lambda kind: _LAST.index(kind) if kind in _LAST else -1)
    forger = _Forger(survey(directory), Draws(seed, "tamper"))
    # Whole segments first: other faults keep away from the sessions in them.
    gone = [forger.choose_missing() for kind in wanted if kind is Fault.MISSING_SEGMENT]
    planted = [fault for kind in wanted for fault in forger.plant(kind)]
    for fault in gone:
        (directory / fault.file).unlink()
    return planted + gone


class _Forger:
    def __init__(self, found: WrittenJournals, draws: Draws) -> None:
        self._found = found
        self._draws = draws
        self._used: set[tuple[str, bool]] = set()
        self._untouchable: set[Path] = set()

    def plant(self, kind: Fault) -> Iterator[Planted]:
        """Plant one fault; two for forged-end, none for a segment that goes missing later."""
        match kind:
            case Fault.FORGED_END:
                yield self._forge_end(early=False)
                yield self._forge_end(early=True)
            case Fault.TORN_TAIL:
                yield self._tear()
            case Fault.RECHAIN:
                yield self._rechain()
            case Fault.MISSING_SEGMENT:
                return
            case _:
                yield self._change(kind)

    def choose_missing(self) -> Planted:
        """Choose a segment that another one of its run follows."""
        followed = [
            (path, name)
            for (path, name), (_, after) in pairwise(self._found.segments)
            if (name.node, name.start) == (after.node, after.start)
            and path not in self._untouchable
        ]
        if not followed:
            raise _no_place(Fault.MISSING_SEGMENT, "smaller segments")
        path, name = self._draws.choice(followed)
        lost = [stretch for stretch in self._found.stretches if stretch.path == path]
        self._untouchable.add(path)
        for stretch in lost:
            self._use(stretch.session, stretch.direction)
        count = sum(stretch.count for stretch in lost)
        detail = f"{len({stretch.session.number for stretch in lost})} sessions"
        return Planted(Fault.MISSING_SEGMENT, path.name, name.node, count=count, detail=detail)

    def _change(self, kind: Fault) -> Planted:
        for stretch in self._stretches():
            segment = Segment(stretch.path)
            fault = _CHANGES[kind](segment, stretch, self._draws)
            if fault is not None:
                if kind is not Fault.BAD_CRC:
                    segment.save()
                self._use(stretch.session, stretch.direction)
                return fault
        raise _no_place(kind)

    def _rechain(self) -> Planted:
        for stretch in self._stretches():
            fault = chains.rechain(stretch, self._draws)
            if fault is not None:
                self._use(stretch.session, stretch.direction)
                return fault
        raise _no_place(Fault.RECHAIN)

    def _forge_end(self, *, early: bool) -> Planted:
        sessions = [session for session in self._found.sessions if self._is_free(session)]
        self._draws.shuffle(sessions)
        for session in sessions:
            forge = chains.forge_early_end if early else chains.forge_code
            path = session.segments[0] if early else session.segments[-1]
            fault = forge(session, path, self._draws)
            if fault is not None:
                for direction in (0, 1):
                    self._use(session, direction)
                return fault
        raise _no_place(Fault.FORGED_END)

    def _tear(self) -> Planted:
        whole = [one for one in self._found.segments if one[0] not in self._untouchable]
        if not whole:
            raise _no_place(Fault.TORN_TAIL, "smaller segments")
        path, name = self._draws.choice(whole)
        self._untouchable.add(path)
        end = read_end(path)
        cut = self._draws.randrange(1, end.size if end else 2)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - cut)
        return Planted(Fault.TORN_TAIL, path.name, name.node, detail=f"{cut} bytes")

    def _stretches(self) -> Iterator[Stretch]:
        """Where one may still tamper, in an order by chance; the longer the sooner."""
        free = [one for one in self._found.stretches if one.count >= _LEAST]
        keys = {id(one): self._draws.random() ** (1 / one.count) for one in free}
        for stretch in sorted(free, key=lambda one: -keys[id(one)]):
            if stretch.session.way(stretch.direction) not in self._used:
                yield stretch

    def _is_free(self, session: WrittenSession) -> bool:
        ways = {session.way(0), session.way(1)}
        return session.end is not None and ways.isdisjoint(self._used)

    def _use(self, session: WrittenSession, direction: int) -> None:
        self._used.add(session.way(direction))


def _no_place(kind: Fault, more: str = "a longer simulation, or more nodes") -> FileError:
    return FileError(f"no place is left for {kind.value}: it takes {more}")
