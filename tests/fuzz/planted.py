"""A target with a deliberate bug: it accepts every map as one without keys from 7 up.

Many single changes of the seed trigger it, so that a fuzzer finds it within seconds.
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
