"""The limits of a decoder, checked before memory is allocated."""

from dataclasses import dataclass
from typing import Final

from parley._lbm.errors import LbmError

# Decoding and encoding recurse once per level, so the allowed depth must stay far below the
# recursion limit of the interpreter.
DEPTH_CEILING: Final = 128
# Non-empty arrays and maps that are allowed in a payload of any size.
LEAST_CONTAINERS: Final = 8_192


@dataclass(frozen=True, slots=True)
class LbmLimits:
    """Limits of one decoding (section 3).

    `max_bytes` is the size of the encoding. `max_items` counts each map, key, value and array
    element. `max_depth` counts nested containers; the payload's map is level 1. The size also
    limits the number of containers (`most_containers`).

    Raises:
        LbmError: a limit is below 1, or the depth above 128.

    Example:

        from parley.protocol import LbmLimits, decode, encode

        small = LbmLimits(max_bytes=1024, max_items=100, max_depth=4)
        cells = decode(encode({21: "news"}), small)
    """

    max_bytes: int = 64 * 1024 * 1024
    max_items: int = 131_072
    max_depth: int = 16

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_items < 1 or not 1 <= self.max_depth <= DEPTH_CEILING:
            raise LbmError(f"limits out of range: {self!r}")


def most_containers(size: int) -> int:
    """Return how many non-empty arrays and maps `size` encoded bytes may contain. A container can
    be a single byte, but takes eight times as long to read as a small number.
    """
    return LEAST_CONTAINERS + size // 16


DEFAULT_LIMITS: Final = LbmLimits()
HANDSHAKE_LIMITS: Final = LbmLimits(max_bytes=16_384, max_items=256)
