"""A finding of `parley doctor`: a level, a subject, and advice."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding, in ascending order."""

    OK = "ok"
    NOTE = "note"  # for information
    WEAK = "weak"  # works, but the protection could be better
    PROBLEM = "problem"  # does not work, or does not protect


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding. `mend` is the advice, empty if there is nothing to do."""

    level: Level
    subject: str
    text: str
    mend: str = ""
