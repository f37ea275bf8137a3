"""A finding of `parley doctor`: a level, a subject, and advice."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters, the least first."""

    OK = "ok"
    NOTE = "note"  # good to know
    WEAK = "weak"  # it works, and could protect better
    PROBLEM = "problem"  # it does not work, or does not protect


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at. `mend` is empty where there is nothing to do."""

    level: Level
    subject: str
    text: str
    mend: str = ""
