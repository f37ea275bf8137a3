"""The row that identifies the making of a batch: the number of a batch does not, since a batch can
be made again, by the same stream or by another one.
"""

from datetime import date
from typing import Final

import pyarrow as pa

from parley._crypto.randomness import random_bytes
from parley._pipeline.schema import MADE, WALKED_ARROW

_TOKEN_SIZE: Final = 16


def made_row() -> pa.RecordBatch:
    """One row with the columns of `WALKED`, of part `made`, with a new random token in `other`."""
    row = {"part": MADE, "other": random_bytes(_TOKEN_SIZE).hex(), "date": date(1970, 1, 1)}
    return pa.RecordBatch.from_pylist([row], WALKED_ARROW)
