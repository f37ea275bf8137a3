"""What was planted: its kind, and where. The list is kept outside of the journals.

It says what was done, not what should be found.
"""

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """How a journal is tampered with."""

    BIT_FLIP = "bit-flip"  # one bit of an event
    DROP = "drop"  # an event is taken out
    REORDER = "reorder"  # two events that follow each other change places
    DUPLICATE = "duplicate"  # an event comes twice
    FOREIGN_SEAL = "foreign-seal"  # a seal that belongs to another event
    RECHAIN = "rechain"  # a bit flip, after which the whole chain is made right again
    FORGED_END = "forged-end"  # one session ends with another code, another one earlier
    BAD_CRC = "bad-crc"  # one bit of an event, and the CRC left as it was
    TORN_TAIL = "torn-tail"  # the last bytes of a closed segment are gone
    MISSING_SEGMENT = "missing-segment"  # a segment with others after it is gone


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault. `file` is the segment's name, `node` keeps the journal, `session` is its id
    in hex, `direction` sent or received, `place` that of the first event concerned in its
    chain, as it was; `count` of events; `detail` what else there is to say."""

    kind: Fault
    file: str
    node: str
    session: str | None = None
    direction: str | None = None
    place: int | None = None
    count: int = 0
    detail: str = ""
