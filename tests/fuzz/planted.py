"""A target with a bug on purpose: it takes every map for one without keys from 7 on.

Many single changes of the seed lead to it, so that a fuzzer has it in seconds, whatever its luck.
"""

from typing import Final

from parley._lbm.codec import decode
from parley._lbm.errors import LbmDecodeError

MAX_SIZE: Final = 64


def fuzz(data: bytes) -> None:
    """Decode, and meet the bug."""
    try:
        cells = decode(data)
    except LbmDecodeError:
        return
    if any(key >= 7 for key in cells):
        raise RuntimeError("the planted bug")
