"""The limits of a decoder, checked before the memory is taken."""

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
    """Limits of one decoding (section 3).

    `max_bytes` is the size of the encoding. `max_items` counts each map, key, value and array
    element. `max_depth` counts nested containers, the payload's map being 1. The number of
    containers is limited by the size (`most_containers`). Raises LbmError for limits below 1 or a
    depth above 128.
    """

    max_bytes: int = 64 * 1024 * 1024
    max_items: int = 131_072
    max_depth: int = 16

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_items < 1 or not 1 <= self.max_depth <= DEPTH_CEILING:
            raise LbmError(f"limits out of range: {self!r}")


def most_containers(size: int) -> int:
    """Return how many non-empty arrays and maps `size` encoded bytes may have. One takes eight
    times as long to read as a small number, and as little as one byte."""
    return LEAST_CONTAINERS + size // 16


DEFAULT_LIMITS: Final = LbmLimits()
HANDSHAKE_LIMITS: Final = LbmLimits(max_bytes=16_384, max_items=256)
