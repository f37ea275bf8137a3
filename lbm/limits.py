"""How much a decoder accepts, as one value that is passed along.

Every limit is checked before the memory it guards is taken. This file
knows the numbers of section 3 and nothing of the encoding.
"""

from dataclasses import dataclass
from typing import Final

from parley._lbm.errors import LbmError

# Decoding and encoding recurse once for each level, so the depth that may be
# asked for stays far below the interpreter's own recursion limit.
DEPTH_CEILING: Final = 128
# Arrays and maps that hold anything, of which a payload of any size may have so many.
LEAST_CONTAINERS: Final = 8_192


@dataclass(frozen=True, slots=True)
class LbmLimits:
    """Bounds of one decoding (section 3).

    `max_bytes` is the size of the encoding. `max_items` counts every data item:
    the outermost one, each map key, each map value, each array element.
    `max_depth` counts containers inside each other, the payload's map being 1. How many
    of the items may be containers follows from the size (`most_containers`).
    Raises LbmError for bounds below 1 or a depth above 128.
    """

    max_bytes: int = 64 * 1024 * 1024
    max_items: int = 131_072
    max_depth: int = 16

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_items < 1 or not 1 <= self.max_depth <= DEPTH_CEILING:
            raise LbmError(f"limits out of range: {self!r}")


def most_containers(size: int) -> int:
    """How many arrays and maps that hold anything there may be in `size` encoded bytes.

    Each takes eight times as long to read as a small number, and as little as one byte. So a short
    payload has few of them, and a long one has more only if each has sixteen bytes."""
    return LEAST_CONTAINERS + size // 16


DEFAULT_LIMITS: Final = LbmLimits()
HANDSHAKE_LIMITS: Final = LbmLimits(max_bytes=16_384, max_items=256)
