"""Ids as SQLite keeps them: one integer of 63 bits, milliseconds and a count within them.

An id in text that does not fit belongs to no event; as a place in a stream it is the nearest one
before it.
"""

import re
from collections.abc import Sequence
from typing import Final

from parley._node.bus.ids import parse_id

# Bits of the count: 1,048,576 events in a millisecond (more go on in the next), until 2248.
BITS: Final = 20
COUNT: Final = 2**BITS - 1
LARGEST: Final = 2**63 - 1
# An id that no event has.
NO_ID: Final = -1

_LAST_MILLISECOND: Final = LARGEST >> BITS
# Milliseconds before the year 2223, and a count that fits.
_USUAL: Final = re.compile(
    r"([1-7][0-9]{12}|[1-9][0-9]{0,11})-(0|[1-9][0-9]{0,5})", re.ASCII
).fullmatch


def first_at(seconds: float) -> int:
    """The first id of the millisecond that a time, in seconds since 1970, is in."""
    return max(0, min(int(seconds * 1000), _LAST_MILLISECOND)) << BITS


def text_of(number: int) -> str:
    """The id as text."""
    return f"{number >> BITS}-{number & COUNT}"


def number_of(text: str) -> int:
    """The integer of an id; `NO_ID` if no event of ours can have it.

    Raises:
        InvalidEventError: it is not an id.
    """
    milliseconds, number = parse_id(text)
    if number > COUNT or milliseconds > _LAST_MILLISECOND:
        return NO_ID
    return milliseconds << BITS | number


def place_of(text: str) -> int:
    """The last integer that is not after an id, whether an event has it or not.

    Raises:
        InvalidEventError: it is not an id.
    """
    milliseconds, number = parse_id(text)
    if milliseconds > _LAST_MILLISECOND:
        return LARGEST
    return milliseconds << BITS | min(number, COUNT)


def numbers_of(ids: Sequence[str]) -> list[int]:
    """The integers of several ids, without those that no event can have.

    Raises:
        InvalidEventError: one of them is not an id.
    """
    found = []
    for text in ids:
        # Nearly always an id is as text_of writes it; number_of reads all others.
        match = _USUAL(text) if type(text) is str else None
        number = int(match[1]) << BITS | int(match[2]) if match else number_of(text)
        if number != NO_ID:
            found.append(number)
    return found
