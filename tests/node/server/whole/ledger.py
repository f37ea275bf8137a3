"""`Ledger`: the requests, executions, answers and notes of a whole network, and checks of them.

Actions may not repeat, and every loss must be reported. The trace is the same for the same seed.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Job:
    """Work for `target` to do once: a call or a note. With `once`, it is requested until an answer
    arrives; otherwise it is requested one time.
    """

    name: str
    target: str
    once: bool
    runs: int = 0
    answered: bool = False
    told: str = ""  # the error that ended it


@dataclass
class Ledger:
    """The records of a run.

    `now` is simulated seconds. `published` has the names of all notes of a room, in order, for each
    lifetime of its publisher.
    """

    now: Callable[[], float]
    jobs: dict[str, Job] = field(default_factory=dict)
    published: dict[str, list[list[str]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)
    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def say(self, what: str, count: str = "") -> None:
        self._hash.update(f"{self.now():.6f} {what}\n".encode())
        if count:
            self.counts[count] += 1

    def fault(self, what: str) -> None:
        self.say(f"WRONG {what}")
        self.wrong.append(f"{self.now():.3f} {what}")

    @property
    def trace(self) -> str:
        return self._hash.hexdigest()

    # Work.

    def begin(self, job: Job) -> Job:
        self.jobs[job.name] = job
        self.say(f"{job.name} for {job.target}")
        return job

    def ran(self, name: str, where: str) -> None:
        job = self.jobs[name]
        job.runs += 1
        self.say(f"{name} runs at {where}")
        if job.runs > 1:
            self.fault(f"{name} ran {job.runs} times")
        if where != job.target:
            self.fault(f"{name} was for {job.target} and ran at {where}")

    def answered(self, job: Job) -> None:
        job.answered = True
        kind = job.name.split()[0]
        self.say(f"{job.name} is answered", f"{kind}{' once' if job.once else ''}, answered")
        if job.runs != 1:
            self.fault(f"{job.name} is answered and ran {job.runs} times")

    def told(self, job: Job, error: Exception) -> None:
        job.told = type(error).__name__
        kind = job.name.split()[0]
        self.say(f"{job.name}: {job.told}", f"{kind}{' once' if job.once else ''}, {job.told}")

    # Rooms.

    def born(self, room: str) -> None:
        self.published.setdefault(room, []).append([])
        self.say(f"room {room} begins")

    def note(self, room: str, name: str) -> None:
        lives = self.published[room]
        self.ran(name, room)
        lives[-1].append(name)
        self._places[name] = len(lives) - 1, len(lives[-1])

    def place(self, name: str) -> tuple[int, int]:
        """Return the lifetime of a note's publisher and the number of the note in it, from 1."""
        return self._places[name]


class Reading:
    """The notes that one reader of a room has read.

    Missing notes must be reported: by numbers, or by an event that sets `is_told` (the subscription
    was not recovered, or it restarted after an error). `last` is the place of the last note.
    """

    def __init__(self, ledger: Ledger, reader: str) -> None:
        self.last = (-1, 0)
        self.is_told = True  # at the beginning there is no gap
        self._ledger, self._reader = ledger, reader

    def take(self, name: str, told: int) -> None:
        """Record a note, and the number of notes reported as missing before it."""
        ledger, last, place = self._ledger, self.last, self._ledger.place(name)
        ledger.say(f"{self._reader} reads {name}", "notes read")
        read = f"{self._reader} reads {name} at {place} after {last}"
        if place <= last:
            ledger.fault(read)
        begins = place[0] != last[0]
        missed = place[1] - 1 - (0 if begins else last[1])
        if begins or missed > 0:
            ledger.counts["notes missed, and told"] += max(0, missed)
            if not self.is_told and (begins or told < missed):
                ledger.fault(f"{read}, and {told} were told to be missing")
        self.last, self.is_told = place, False

    def tell(self, error: Exception) -> None:
        self.is_told = True
        name = type(error).__name__
        self._ledger.say(f"{self._reader} reads no more: {name}", f"reading ended, {name}")
