"""What a bus counted in this process, for its owner to look at.

One rule: numbers only go up, from the moment the bus was made. Counts nothing itself.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Events of one `Bus`, by what became of them here.

    Attributes:
        published: were stored; one that was there already is not counted.
        delivered: were fetched to be processed, again or for the first time.
        acknowledged: were recorded as done.
        failed: attempts that failed: refused, or left by an exception.
        retried: were delivered a second or later time.
        dead_lettered: were set aside.
    """

    published: int = 0
    delivered: int = 0
    acknowledged: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
