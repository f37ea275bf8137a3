"""Row 19's numbers: the ends of every range, and what is said of how each was met.

A number is written with no thought of where it goes; a test says where, and what has
to become of it.
"""

from collections.abc import Callable
from typing import Final

from tests.interop.meeting import Ours
from tests.reference.peer import ReferencePeer

# The ends of every range that the protocol has, one beyond them, and those of the encoding.
ENDS: Final = (0, 1, 2, 255, 65_535, 65_536)
GREAT: Final = tuple(2**bits + more for bits in (31, 32, 63) for more in (-1, 0, 1))
LAST: Final = (2**64 - 2, 2**64 - 1)
NEGATIVE: Final = (-1, -(2**31), -(2**63), -(2**64) + 1, -(2**64))
NUMBERS: Final = (*NEGATIVE, *ENDS, *GREAT, *LAST)

LARGEST_CODE: Final = 2**32 - 1
BYTES: Final = (*range(14), 31, 32, 63, 64, 65, 127, 128, 129, 254, 255)
TAKEN: Final = "taken"
PROTOCOL_ERROR: Final = "protocol-error"

Verdict = Callable[[int], str]


def within(least: int, most: int, otherwise: str = PROTOCOL_ERROR) -> Verdict:
    """Taken from `least` to `most`."""
    return lambda number: TAKEN if least <= number <= most else otherwise


def only(*numbers: int) -> Verdict:
    """These are taken, no other is."""
    return lambda number: TAKEN if number in numbers else PROTOCOL_ERROR


def always(verdict: str) -> Verdict:
    return lambda number: verdict


def framed(peer: ReferencePeer, length: int) -> None:
    """A frame of some length, none of it under a key."""
    peer.send_raw(length.to_bytes(4) + bytes(min(length, peer.channel.limit)))


def assert_calm(ours: Ours) -> None:
    """Nothing in the log but ends of connections: no traceback, no error of our own."""
    assert [line for line in ours.log if line.startswith(("ERROR", "CRITICAL"))] == []
    assert [line for line in ours.log if "internal-error" in line] == []
