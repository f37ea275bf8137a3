"""A target with a bug on purpose: it takes every map for one without the key 7.

The bug is two changes away from the seed, so that a fuzzer has it in seconds.
"""

from typing import Final

from lbm.codec import decode
from lbm.errors import LbmDecodeError

MAX_SIZE: Final = 64


def fuzz(data: bytes) -> None:
    """Decode, and meet the bug."""
    try:
        cells = decode(data)
    except LbmDecodeError:
        return
    if 7 in cells:
        raise RuntimeError("the planted bug")
